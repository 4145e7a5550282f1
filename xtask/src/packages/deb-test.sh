# In namespaces of its own: $1 is a folder to work in, $2 has the packages first/, second/.
trap 'echo "$0:$LINENO: failed: $BASH_COMMAND" >&2' ERR
ip link set lo up
mkdir -p "$1/overlay" && mount -t tmpfs tmpfs "$1/overlay"
mkdir "$1/overlay/upper" "$1/overlay/work" "$1/overlay/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/overlay/upper,workdir=$1/overlay/work" "$1/overlay/root"
root="$1/overlay/root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir "$root/packages" && mount --bind "$2" "$root/packages"
# Services of a package are not this test's: none may start by itself.
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d"
first=/packages/first/$(basename "$2"/first/*.deb)
second=/packages/second/$(basename "$2"/second/*.deb)
in_root() { chroot "$root" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

in_root dpkg --force-depends -i "$first" >/dev/null
in_root id tidegate >/dev/null
test "$(in_root stat -c %a%U%G /var/log/tidegate)" = 750roottidegate
in_root tidegate check --config /etc/tidegate/tidegate.kdl
in_root tidegate --version
for file in /usr/share/man/man1/tidegate-serve.1.gz /usr/share/bash-completion/completions/tidegate \
    /usr/share/doc/tidegate/docs/production.md /usr/share/doc/tidegate/docs/from-nginx.md \
    /usr/share/doc/tidegate/copyright /usr/lib/systemd/system/tidegate.service /etc/logrotate.d/tidegate; do
    test -f "$root$file" || { echo "$file was not installed" >&2; exit 1; }
done
document=$(sed -n 's/^Documentation=file://p' "$root/usr/lib/systemd/system/tidegate.service")
test -f "$root$document" || { echo "the unit names $document, which is not there" >&2; exit 1; }

# As the unit starts it.
start=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/tidegate.service")
mkdir "$root/run/tidegate"
chroot "$root" /bin/sh -c "exec $start" 2> "$1/server.log" &
for _ in $(seq 200); do
    if curl -fs http://127.0.0.1/ >/dev/null; then break; fi
    read -rt 0.1 <> <(:) || true
done
curl -fs http://127.0.0.1/ | grep -q 'Tidegate is here' || { cat "$1/server.log" >&2; exit 1; }
curl -fs 'http://127.0.0.1/.perf?format=prometheus' | grep -q tidegate_ || { cat "$1/server.log" >&2; exit 1; }

# One version over another under load: the process changes, and no request is lost.
before=$(in_root tidegate status --json --control /run/tidegate/tidegate.sock | sed 's/.*"log_lines_lost"[^}]*"pid":\([0-9]*\),"processes".*/\1/')
in_root tidegate bench hit -c 16 -t 8s --rate 400 http://127.0.0.1/ > "$1/load" 2>&1 &
load=$!
in_root dpkg --force-depends -i "$second"
after=$(in_root tidegate status --json --control /run/tidegate/tidegate.sock | sed 's/.*"log_lines_lost"[^}]*"pid":\([0-9]*\),"processes".*/\1/')
test -n "$before" && test "$before" != "$after" || { echo "the upgrade started nothing: $before, $after" >&2; exit 1; }
# A busy machine makes the load late, and its figures no figures; that none failed is what counts here.
wait $load || true
grep -q '^Failed requests  *0$' "$1/load" || { cat "$1/load" >&2; exit 1; }
grep -E '^(Complete|Failed) requests' "$1/load"

# Settings of one's own stay, and a purge leaves nothing.
echo '// mine' >> "$root/etc/tidegate/tidegate.kdl"
in_root dpkg --force-depends --force-confdef --force-confold -i "$second" >/dev/null
grep -q '// mine' "$root/etc/tidegate/tidegate.kdl"
in_root dpkg --remove tidegate >/dev/null
test -f "$root/etc/tidegate/tidegate.kdl"
if curl -fs http://127.0.0.1/ >/dev/null; then echo 'the server outlived its package' >&2; exit 1; fi
in_root dpkg --purge tidegate >/dev/null
for path in /var/log/tidegate /var/lib/tidegate /usr/share/tidegate /usr/bin/tidegate /etc/tidegate/tidegate.kdl; do
    test ! -e "$root$path" || { echo "$path is left" >&2; exit 1; }
done
