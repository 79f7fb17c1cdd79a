#!/bin/bash
# Start a QEMU guest with two NUMA nodes, SMT and cgroup v2 (on x86 also several L3 caches), and run the tests of the
# CPU and memory drivers under our node agent with containerd and runc inside it, in both cgroup layouts.
#
#   GUEST_PROGRAMS=DIR [GUEST_ARCH=amd64|arm64] tests/real/vm/run.sh [DIRECTORY [PYTEST ARGUMENTS...]]
#
# GUEST_ARCH is the architecture of the guest (default: that of this machine). GUEST_PROGRAMS has containerd,
# containerd-shim-runc-v2 and ctr for it, static or for Debian 12, in DIR/$GUEST_ARCH or in DIR; runc is Debian's
# unless it is there, too. Needs root, debootstrap, e2fsprogs, qemu-system-x86 or qemu-system-arm (for a guest of
# another architecture also qemu-user-static), Python 3.11 with the development requirements in .venv, and network
# access for Debian's and Python's packages. Everything is kept in DIRECTORY (default: /var/tmp/plimsoll-vm), so that
# a second run needs no download. With /dev/kvm it takes minutes; without it, or for another architecture, or with
# EMULATE=1 (for a /dev/kvm that cannot run Linux), QEMU emulates, which takes ten times as long and more; timeouts
# of the tests are multiplied by PATIENCE then (default: 20).
set -euo pipefail
repository=$(cd "$(dirname "$0")/../../.." && pwd)
host=$(dpkg --print-architecture)
arch=${GUEST_ARCH:-$host}
case $arch in
amd64) machine=x86_64 elf=3e console=ttyS0 ;;
arm64) machine=aarch64 elf=b7 console=ttyAMA0 ;;
*) echo "GUEST_ARCH: $arch is neither amd64 nor arm64" >&2; exit 2 ;;
esac
programs=${GUEST_PROGRAMS:?set it to a directory with containerd, containerd-shim-runc-v2 and ctr}
[ -d "$programs/$arch" ] && programs=$programs/$arch
work=${1:-/var/tmp/plimsoll-vm}/$arch
shift || true
tests=("${@:-tests/real/test_agent_node.py}")
root=$work/root
mkdir -p "$work"

for name in containerd containerd-shim-runc-v2 ctr runc; do
    if [ -e "$programs/$name" ]; then
        found=$(od -An -tx1 -j18 -N1 "$programs/$name" | tr -d ' ')
        [ "$found" = $elf ] || { echo "$programs/$name is not a program for $arch" >&2; exit 2; }
    elif [ $name != runc ]; then
        echo "$programs has no $name" >&2; exit 2
    fi
done

if [ ! -e "$work/debian" ]; then
    rm -rf "$root"
    INITRD=No debootstrap --variant=minbase --arch="$arch" \
        --include="systemd-sysv,dbus,udev,kmod,linux-image-cloud-$arch,initramfs-tools,python3,iproute2,procps,util-linux,mount,numactl,runc" \
        bookworm "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    # Once, and with few modules: an emulated machine takes minutes to pack or unpack all of them.
    echo MODULES=list > "$root/etc/initramfs-tools/conf.d/modules"
    printf '%s\n' virtio_pci virtio_blk virtio_mmio ext4 > "$root/etc/initramfs-tools/modules"
    chroot "$root" update-initramfs -c -k "$(ls "$root/lib/modules")"
    touch "$work/debian"
fi

# Wheels for the guest: those of the product, and pytest with what it needs.
python=$repository/.venv/bin/python
awk 'BEGIN { split("pytest iniconfig pluggy packaging pygments", names, " "); for (i in names) wanted[names[i]] = 1 }
     /^[a-z]/ { split($0, parts, "=="); keep = parts[1] in wanted } keep' \
    "$repository/requirements-dev.lock" > "$work/pytest.lock"
locks=$(cat "$repository/requirements.lock" "$work/pytest.lock" | sha256sum)
if [ "$(cat "$work/packages/locks" 2> /dev/null)" != "$locks" ]; then
    rm -rf "$work/packages"
    for lock in "$repository/requirements.lock" "$work/pytest.lock"; do
        "$python" -m pip install --quiet --no-deps --no-compile --upgrade --target "$work/packages" --only-binary=:all: \
            --implementation cp --python-version 3.11 --abi cp311 --abi abi3 --abi none \
            --platform manylinux_2_28_$machine --platform manylinux2014_$machine --platform any \
            --require-hashes -r "$lock"
    done
    echo "$locks" > "$work/packages/locks"
fi

rm -rf "$root/plimsoll"
mkdir -p "$root/plimsoll/bin"
for name in containerd containerd-shim-runc-v2 ctr runc; do
    if [ -e "$programs/$name" ]; then cp -L "$programs/$name" "$root/plimsoll/bin/"; fi
done
[ -e "$root/plimsoll/bin/runc" ] || ln -s /usr/sbin/runc "$root/plimsoll/bin/runc"
cp -r "$repository/tests" "$work/packages" "$root/plimsoll/"
"$python" -m pip install --quiet --no-deps --no-compile --no-build-isolation --target "$root/plimsoll/packages" \
    "$repository"
# An emulated machine would spend minutes on compiling.
"$python" -m compileall -q --invalidation-mode unchecked-hash -j 2 -s "$root" \
    "$root/plimsoll/packages" "$root/plimsoll/tests" > /dev/null || true
cp "$repository/tests/real/vm/guest.sh" "$root/plimsoll/"
printf '%s\n' "${tests[@]}" > "$root/plimsoll/arguments"
cat > "$root/etc/systemd/system/plimsoll-test.service" <<UNIT
[Unit]
Description=Tests of the CPU and memory drivers
After=basic.target
[Service]
Type=oneshot
Delegate=yes
ExecStart=/bin/bash /plimsoll/guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/$console
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf /etc/systemd/system/plimsoll-test.service "$root/etc/systemd/system/multi-user.target.wants/"
for unit in serial-getty@$console.service getty.target apt-daily.timer apt-daily-upgrade.timer \
    e2scrub_all.timer e2scrub_reap.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
echo guest > "$root/etc/hostname"
echo '127.0.0.1 localhost guest' > "$root/etc/hosts"

rm -f "$work/disk.img"
truncate -s 6G "$work/disk.img"
mke2fs -q -t ext4 -d "$root" "$work/disk.img"

# QEMU uses several threads where the memory order of the guest allows it: not for x86 on arm64. With eight emulated
# CPUs on a host with two, containers were not removed in time. An emulated CPU that waits for the host has not locked
# up.
cpus=4 accelerator=(-accel tcg) emulated=1 patience=${PATIENCE:-20}
kernel='nowatchdog rcupdate.rcu_cpu_stall_suppress=1 mitigations=off'
if [ "$arch" = "$host" ] && [ -w /dev/kvm ] && [ "${EMULATE:-}" = "" ]; then
    cpus=8 accelerator=(-accel kvm) emulated='' patience=${PATIENCE:-1} kernel=
fi
if [ "$arch" = amd64 ]; then
    # An L3 cache for each socket. Without KVM only models of Intel show threads and shared caches.
    hardware=(-machine q35 -cpu "${GUEST_CPU:-$([ $emulated ] && echo Skylake-Server || echo host)}")
    hardware+=(-smp "$cpus,sockets=$((cpus / 2)),cores=1,threads=2")
else
    # QEMU describes no caches to this machine.
    hardware=(-machine virt -cpu "${GUEST_CPU:-$([ $emulated ] && echo cortex-a72 || echo host)}")
    hardware+=(-smp "$cpus,sockets=2,cores=$((cpus / 4)),threads=2")
fi
timeout "${SECONDS_MAX:-7200}" "qemu-system-$machine" "${hardware[@]}" "${accelerator[@]}" -m 4G -nographic -no-reboot \
    -object memory-backend-ram,id=m0,size=2G -numa "node,nodeid=0,memdev=m0,cpus=0-$((cpus / 2 - 1))" \
    -object memory-backend-ram,id=m1,size=2G -numa "node,nodeid=1,memdev=m1,cpus=$((cpus / 2))-$((cpus - 1))" \
    -kernel "$(ls "$root"/boot/vmlinuz-* | tail -1)" -initrd "$(ls "$root"/boot/initrd.img-* | tail -1)" \
    -append "root=/dev/vda rw console=$console quiet systemd.show_status=0 plimsoll.patience=$patience $kernel" \
    -drive "file=$work/disk.img,format=raw,if=virtio,cache=unsafe" -nic none < /dev/null | tee "$work/console.log"
grep -q "^RESULT 0" "$work/console.log"
