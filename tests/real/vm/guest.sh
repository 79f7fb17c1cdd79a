#!/bin/bash
# Inside the guest of run.sh: show the machine, run the tests, print RESULT and their exit code, power off.
export PATH=/plimsoll/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
export KUBEBUILDER_ASSETS=/plimsoll/bin PYTHONPATH=/plimsoll/packages PYTHONDONTWRITEBYTECODE=1
PLIMSOLL_TEST_PATIENCE=$(sed -n 's/.*plimsoll.patience=\([0-9]*\).*/\1/p' /proc/cmdline)
export PLIMSOLL_TEST_PATIENCE
cd /plimsoll || exit
ip link set lo up
modprobe overlay
echo "kernel $(uname -r), /sys/fs/cgroup: $(stat -fc %T /sys/fs/cgroup), $(containerd --version), $(runc --version | head -1)"
lscpu -e=CPU,NODE,SOCKET,CORE,CACHE
numactl --hardware | head -8
# What a slow guest is doing.
if [ "$PLIMSOLL_TEST_PATIENCE" -gt 1 ]; then
    (while sleep 120; do ps -eo pid,stat,pcpu,etimes,wchan:20,args --sort=-pcpu | head -8 | cut -c1-150; done) &
fi
mapfile -t arguments < arguments
# The suite's own settings name plugins that only other tests need.
python3 -m pytest -c /dev/null --rootdir . --disable-plugin-autoload -v -rs --durations=0 --noconftest -p no:cacheprovider "${arguments[@]}"
echo "RESULT $?"
sync
systemctl poweroff --force
