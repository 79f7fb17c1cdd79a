#!/bin/bash
# Start a QEMU guest with two NUMA nodes, SMT, several L3 caches and cgroup v2, and run the tests of the CPU
# driver with a real kubelet, containerd and runc inside it.
#
#   KUBEBUILDER_ASSETS=DIR tests/real/vm/run.sh [DIRECTORY [PYTEST ARGUMENTS...]]
#
# Needs root, qemu-system-x86, debootstrap and e2fsprogs (Debian packages), a virtual environment with the
# development requirements in .venv, and in KUBEBUILDER_ASSETS the programs of tests/real. Everything is kept
# in DIRECTORY (default: /var/tmp/plimsoll-vm), so that a second run needs no download. With /dev/kvm it takes
# minutes; without it, or with EMULATE=1 (for a /dev/kvm that cannot run Linux), QEMU emulates, which takes about
# ten times as long.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../../.." && pwd)
work=${1:-/var/tmp/plimsoll-vm}
shift || true
assets=${KUBEBUILDER_ASSETS:?set it to a directory with kubelet, containerd, runc and the others}
tests=("${@:-tests/real/test_cpu_driver.py}")
mkdir -p "$work"

if [ ! -e "$work/root/etc/debian_version" ]; then
    debootstrap --variant=minbase \
        --include=systemd-sysv,dbus,udev,kmod,linux-image-cloud-amd64,initramfs-tools,python3,iproute2,iptables,procps,util-linux,numactl \
        bookworm "$work/root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
fi

root=$work/root
rm -rf "$root/plimsoll"
mkdir -p "$root/plimsoll/bin"
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet containerd \
    containerd-shim-runc-v2 ctr runc; do
    cp "$assets/$name" "$root/plimsoll/bin/"
done
for name in src tests deploy docs examples pyproject.toml; do
    cp -r "$repository/$name" "$root/plimsoll/"
done
cp -rL "$repository"/.venv/lib/python3.11/site-packages "$root/plimsoll/packages"
cp "$repository/tests/real/vm/guest.sh" "$root/plimsoll/"
printf '%s\n' "${tests[@]}" > "$root/plimsoll/arguments"
cat > "$root/etc/systemd/system/plimsoll-test.service" <<'UNIT'
[Unit]
Description=Tests of the CPU driver
After=basic.target
[Service]
Type=oneshot
Delegate=yes
ExecStart=/bin/bash /plimsoll/guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf /etc/systemd/system/plimsoll-test.service "$root/etc/systemd/system/multi-user.target.wants/"
ln -sf /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
echo guest > "$root/etc/hostname"
echo '127.0.0.1 localhost guest' > "$root/etc/hosts"

rm -f "$work/disk.img"
truncate -s 6G "$work/disk.img"
mke2fs -q -t ext4 -d "$root" "$work/disk.img"

accelerator=(-accel tcg,thread=multi -cpu Skylake-Server)
[ -w /dev/kvm ] && [ "${EMULATE:-}" = "" ] && accelerator=(-accel kvm -cpu "${GUEST_CPU:-host}")
# Four sockets of one core of two threads: 8 CPUs, 4 L3 caches, 2 NUMA nodes. Without KVM only models of Intel
# show threads and shared caches.
timeout "${SECONDS_MAX:-3600}" qemu-system-x86_64 -machine q35 "${accelerator[@]}" -m 4G -nographic -no-reboot \
    -smp 8,sockets=4,cores=1,threads=2 \
    -object memory-backend-ram,id=m0,size=2G -numa node,nodeid=0,memdev=m0,cpus=0-3 \
    -object memory-backend-ram,id=m1,size=2G -numa node,nodeid=1,memdev=m1,cpus=4-7 \
    -kernel "$(ls "$root"/boot/vmlinuz-* | tail -1)" -initrd "$(ls "$root"/boot/initrd.img-* | tail -1)" \
    -append "root=/dev/vda rw console=ttyS0 systemd.show_status=0" \
    -drive "file=$work/disk.img,format=raw,if=virtio" -nic none < /dev/null | tee "$work/console.log"
grep -q "^RESULT 0" "$work/console.log"
