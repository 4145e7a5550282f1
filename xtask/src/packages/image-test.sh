# In namespaces of its own: $1 is a folder to work in, $2 has the image in second/.
trap 'echo "$0:$LINENO: failed: $BASH_COMMAND" >&2' ERR
ip link set lo up
mkdir -p "$1/image" && mount -t tmpfs tmpfs "$1/image"
mkdir "$1/image/layout" "$1/image/root"
tar -C "$1/image/layout" -xf "$2"/second/tidegate-0.0.2-*.oci.tar
layout="$1/image/layout"
test "$(cat "$layout/oci-layout")" = '{"imageLayoutVersion":"1.0.0"}'
# Each blob is what its name says, and each descriptor names a blob.
(cd "$layout/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --check --quiet)
blob() { sed -n "s/.*\"$2\":[^]]*\"sha256:\([0-9a-f]*\)\".*/\1/p" "$1" | head -1; }
digest() { grep -o 'sha256:[0-9a-f]*' "$1" | cut -d: -f2; }
manifest="$layout/blobs/sha256/$(digest "$layout/index.json" | head -1)"
for name in $(digest "$manifest"); do test -f "$layout/blobs/sha256/$name"; done
config=$(for name in $(digest "$manifest"); do grep -l '"diff_ids"' "$layout/blobs/sha256/$name" || true; done | head -1)
layer=$(for name in $(digest "$manifest"); do gzip -tq "$layout/blobs/sha256/$name" 2>/dev/null && echo "$layout/blobs/sha256/$name"; done | head -1)
test "$(gzip -dc "$layer" | sha256sum | cut -d' ' -f1)" = "$(digest "$config" | head -1)"
grep -q '"User":"65532:65532"' "$config"
tar -C "$1/image/root" -xzf "$layer"
root="$1/image/root"
mount --bind "$root" "$root"
# What an engine gives: devices, and the processes of the namespace.
mount --rbind /dev "$root/dev"
for folder in run/tidegate tmp; do
    mount -t tmpfs -o mode=0700,uid=65532,gid=65532 tmpfs "$root/$folder"
done
mount -o remount,bind,ro "$root"
if touch "$root/here" 2>/dev/null; then echo 'the root is not read-only' >&2; exit 1; fi
run="chroot --userspec=65532:65532 $root /usr/bin/tidegate"
# Process 1 of a namespace of its own, as an engine starts it.
unshare --mount --pid --fork --kill-child sh -c "mount -t proc proc '$root/proc' && exec $run serve \
    --config /etc/tidegate/tidegate.kdl --control /run/tidegate/tidegate.sock" > "$1/image.log" 2>&1 &
server=$!
for _ in $(seq 200); do
    if curl -fs http://127.0.0.1:8080/ >/dev/null; then break; fi
    read -rt 0.1 <> <(:) || true
done
curl -fs http://127.0.0.1:8080/ | grep -q 'Tidegate is here' || { cat "$1/image.log" >&2; exit 1; }
# The health check of the image, where an engine runs it: beside process 1.
first=$(cat /proc/$server/task/$server/children)
first=${first% }
beside="nsenter --mount --pid --target $first"
test "$($beside cat "$root/proc/1/comm")" = tidegate
$beside $run status --control /run/tidegate/tidegate.sock >/dev/null || { cat "$1/image.log" >&2; exit 1; }
# As an engine ends it. A `stop` beside process 1 would end with it, maybe before it could say so.
kill -TERM "$first"
wait $server || { echo "it ended with $?" >&2; cat "$1/image.log" >&2; exit 1; }
grep -q '"target":"/"' "$1/image.log" || { echo 'no line of the access log' >&2; cat "$1/image.log" >&2; exit 1; }
