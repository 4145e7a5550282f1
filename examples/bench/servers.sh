# The servers of slower.sh and joyent.sh: nginx, lighttpd, Apache (prefork, event) and Tidegate, as they come
# out of the box but for address, root and log, each with the same files. Sourced, not run.

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
TIDEGATE=${TIDEGATE:-$here/../../target/release/tidegate}
TIME=${TIME:-10s}
SERVERS=${SERVERS:-nginx lighttpd apache-prefork apache-event tidegate}

[ -x "$TIDEGATE" ] || { echo "$0: $TIDEGATE is missing; run 'make build', or set TIDEGATE" >&2; exit 1; }
PATH=$PATH:/usr/sbin
work=$(mktemp -d)
pid=
end() { stop; rm -rf "$work"; }
trap end EXIT
trap 'exit 130' INT TERM

# A page of 4 KiB, and a site of 150 files from a few bytes to 250 KiB.
mkdir -p "$work/root/site" "$work/run"
chmod -R a+rX "$work"
head -c 4096 /dev/zero | tr '\0' x > "$work/root/index.htm"
number=0
while [ "$number" -lt 150 ]; do
    head -c $((20 + number * number * 11)) /dev/urandom > "$work/root/site/$number.bin"
    number=$((number + 1))
done

# A port that nobody listens at; the next one for each server.
port=$((20000 + $$ % 20000))

start() {
    port=$((port + 1))
    case $1 in
        nginx)
            command -v nginx > /dev/null || return 1
            cat > "$work/nginx.conf" <<EOF
daemon off; pid $work/run/nginx.pid; error_log $work/nginx.log; worker_processes auto;
events { worker_connections 4096; }
http { access_log off; sendfile on; default_type application/octet-stream;
client_body_temp_path $work/run/b; proxy_temp_path $work/run/p; fastcgi_temp_path $work/run/f;
uwsgi_temp_path $work/run/u; scgi_temp_path $work/run/s;
server { listen 127.0.0.1:$port; root $work/root; } }
EOF
            nginx -p "$work" -c "$work/nginx.conf" 2> /dev/null & ;;
        lighttpd)
            command -v lighttpd > /dev/null || return 1
            cat > "$work/lighttpd.conf" <<EOF
server.bind = "127.0.0.1"
server.port = $port
server.document-root = "$work/root"
server.errorlog = "$work/lighttpd.log"
EOF
            lighttpd -D -f "$work/lighttpd.conf" & ;;
        apache-*)
            command -v apache2 > /dev/null || return 1
            modules=/usr/lib/apache2/modules
            cat > "$work/apache.conf" <<EOF
ServerName localhost
ServerRoot $work
PidFile $work/run/apache.pid
DefaultRuntimeDir $work/run
Listen 127.0.0.1:$port
LoadModule mpm_${1#apache-}_module $modules/mod_mpm_${1#apache-}.so
LoadModule authz_core_module $modules/mod_authz_core.so
ErrorLog $work/apache.log
DocumentRoot $work/root
User www-data
Group www-data
EOF
            # Apache ends its whole process group; this script is not to be in it.
            setsid apache2 -DFOREGROUND -f "$work/apache.conf" & ;;
        tidegate)
            "$TIDEGATE" serve --listen "127.0.0.1:$port" --control "$work/run/control" "$work/root" \
                2> "$work/tidegate.log" & ;;
    esac
    pid=$!
    # Until it listens: the generator says so in its exit code.
    tries=0
    until "$TIDEGATE" bench hit -n 1 -c 1 -q --no-host "http://127.0.0.1:$port/index.htm" > /dev/null 2>&1; do
        [ $? = 98 ] && return 0
        tries=$((tries + 1))
        kill -0 "$pid" 2> /dev/null && [ "$tries" -lt 100 ] || { echo "$1 does not start" >&2; pid=; return 1; }
    done
}

stop() {
    [ -z "$pid" ] || { kill "$pid" 2> /dev/null || :; wait "$pid" 2> /dev/null || :; }
    pid=
}

# row NAME ARGUMENTS... prints one line of the table for one run of `bench hit`.
row() {
    name=$1
    shift
    "$TIDEGATE" bench hit -q "$@" > "$work/screen" 2> "$work/errors" || :
    [ -s "$work/screen" ] || { printf '%-16s %s\n' "$name" "$(cat "$work/errors")"; return; }
    value() { sed -n "s/^$1  *//p" "$work/screen" | head -n 1; }
    percentile() { sed -n "s/^ *$1%  *//p" "$work/screen" | head -n 1; }
    printf '%-16s %12s %14s %11s %11s %11s  %s\n' "$name" \
        "$(value 'Requests per second' | cut -d' ' -f1)" "$(value Availability)" \
        "$(percentile 50)" "$(percentile 99)" "$(percentile 100 | cut -d'(' -f1)" "$(value Verdict:)"
}

head_row() {
    printf '\n%s\n%-16s %12s %14s %11s %11s %11s  %s\n' "$1" server requests/s availability p50 p99 longest verdict
}

# table TITLE ARGUMENTS...: one row for each server; URL in an argument is its address, LIST a list of URLs.
table() {
    head_row "$1"
    shift
    for server in $SERVERS; do
        start "$server" || { printf '%-16s not installed (cargo xtask tools --for bench)\n' "$server"; continue; }
        number=0
        : > "$work/urls.txt"
        while [ "$number" -lt 150 ]; do
            echo "http://127.0.0.1:$port/site/$number.bin" >> "$work/urls.txt"
            number=$((number + 1))
        done
        arguments=
        for argument; do
            case $argument in
                URL) argument=http://127.0.0.1:$port/index.htm ;;
                LIST) argument=$work/urls.txt ;;
            esac
            arguments="$arguments $argument"
        done
        # shellcheck disable=SC2086 # none of them holds a space
        row "$server" $arguments
        stop
    done
}
