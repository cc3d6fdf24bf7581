#!/bin/bash
# systemd as PID 1 of namespaces of its own: SCRATCH holds units, and fw-test.target is started.
# The root is read-only in here, and /tmp, /run and /dev are its own: the machine is untouched.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
S=$1
mount --make-rprivate /
mount --bind $S /mnt
mount -t tmpfs tmpfs /run
ip link set lo up
mkdir -p /run/systemd/system /run/fw-scratch /run/lock
mount --move /mnt /run/fw-scratch
cp /run/fw-scratch/*.{service,target} /run/systemd/system/
cp /run/fw-scratch/*.socket /run/systemd/system/ 2>/dev/null || true
mount -o remount,bind,ro /
for d in /tmp /var/tmp /var/log /var/lib/systemd /dev/shm; do mount -t tmpfs tmpfs $d; done
D=/run/dev; mkdir $D; mount -t tmpfs tmpfs $D
for n in "null 1 3" "zero 1 5" "random 1 8" "urandom 1 9" "full 1 7"; do
    set -- $n; mknod -m 666 $D/$1 c $2 $3
done
mkdir $D/shm $D/pts
ln -s /proc/self/fd $D/fd
touch $D/console
mount --move $D /dev
if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then # control groups of the first version
    umount -R /sys/fs/cgroup
    if ! mount -t cgroup2 cgroup2 /sys/fs/cgroup; then # systemd 258 and later want the second
        mount -t tmpfs tmpfs /sys/fs/cgroup
        mkdir /sys/fs/cgroup/systemd
        mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
    fi
fi
export container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec /lib/systemd/systemd --system --unit=fw-test.target \
    --log-target=console --log-level=info --show-status=no
