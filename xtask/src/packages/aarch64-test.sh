# In namespaces of its own: $1 is a folder to work in, $2 the program for aarch64, $3 qemu. binfmt_misc belongs to a user namespace
# since Linux 6.7, so that the machine itself learns nothing.
trap 'echo "$0:$LINENO: failed: $BASH_COMMAND" >&2' ERR
ip link set lo up
mkdir "$1/binfmt" "$1/site"
mount -t binfmt_misc binfmt_misc "$1/binfmt"
magic='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":aarch64:M::$magic:$mask:$3:OPF" > "$1/binfmt/register"
# Where the loader of that processor looks. A variable of qemu's would not reach all that it starts.
mount -t overlay overlay -o lowerdir=/usr/aarch64-linux-gnu/lib:/usr/lib /usr/lib
echo 'from another processor' > "$1/site/index.html"
cat > "$1/tidegate.kdl" <<SETTINGS
listen "127.0.0.1:8080"
listen "127.0.0.1:8081" { default-site "app" }
access-log stdout
site {
    root "$1/site"
    compress "zstd" "br" "gzip"
    route "/.perf" { status }
    route "/app/*" { proxy "http://127.0.0.1:8081" }
}
site "app" { respond 200 "the application answers" }
SETTINGS
tidegate() { "$program" "$@"; }
program=$2
tidegate check --config "$1/tidegate.kdl"
"$program" serve --config "$1/tidegate.kdl" --control "$1/tidegate.sock" > "$1/server.log" 2>&1 &
server=$!
for _ in $(seq 300); do
    if curl -fs http://127.0.0.1:8080/ >/dev/null; then break; fi
    read -rt 0.1 <> <(:) || true
done
curl -fsS http://127.0.0.1:8080/ | grep -q 'from another processor' || { cat "$1/server.log" >&2; exit 1; }
curl -fsS http://127.0.0.1:8080/app/x | grep -q 'the application answers' || { cat "$1/server.log" >&2; exit 1; }
curl -fsS 'http://127.0.0.1:8080/.perf?format=prometheus' | grep -q tidegate_
tidegate status --control "$1/tidegate.sock" | grep -q serving
tidegate reload --control "$1/tidegate.sock"
curl -fsS http://127.0.0.1:8080/ >/dev/null
tidegate stop --control "$1/tidegate.sock"
wait $server || { cat "$1/server.log" >&2; exit 1; }
grep -q '"GET / HTTP/1.1" 200' "$1/server.log"
