#!/usr/bin/env -S --default-signal=HUP sh
# Whoever runs the tests under nohup ignores HUP, which a shell could not trap then.
# Stands for the tidegate binary in tests/process.rs: starts, says where it listens, obeys signals.
case "$1" in
serve)
    if grep -q refuse "$3"; then
        echo "the settings are refused" >&2
        exit 3
    fi
    trap 'echo "taking new settings"' HUP
    trap 'echo "draining"; exit 0' TERM
    echo "listening on unix:$5" >&2
    while :; do
        sleep 0.05 &
        wait $!
    done
    ;;
check)
    echo "checked $3"
    echo "a warning" >&2
    exit 1
    ;;
esac
