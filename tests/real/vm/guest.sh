#!/bin/bash
# Inside the guest of run.sh: show the machine, run the tests, print RESULT and their exit code, power off.
exec > /dev/ttyS0 2>&1
export PATH=/plimsoll/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
export KUBEBUILDER_ASSETS=/plimsoll/bin PYTHONPATH=/plimsoll/src:/plimsoll/packages PYTHONDONTWRITEBYTECODE=1
cd /plimsoll
ip link set lo up
echo "kernel $(uname -r), /sys/fs/cgroup: $(stat -fc %T /sys/fs/cgroup), runtime: $(containerd --version)"
lscpu -e=CPU,NODE,SOCKET,CORE,CACHE
numactl --hardware | head -8
for options in "--count 4" "--count 3 --full-cores" "--count 8" "--count 6 --algorithm distributed"; do
    echo "plan $options:"
    # shellcheck disable=SC2086
    python3 -m plimsoll.cli.main driver cpu plan $options
done
mapfile -t arguments < arguments
python3 -m pytest -v -p no:cacheprovider "${arguments[@]}"
echo "RESULT $?"
sync
systemctl poweroff --force
