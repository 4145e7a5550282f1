#!/bin/sh
# The measurements of "Playing with Lighttpd, Litespeed, FCGI and Mongrel" (2006), of the servers of today:
# ab -n 1000 -c 10, a light siege of a minute, static files at 200 connections, then what rebooted a machine:
# alternating bursts of high concurrency.
#
#   examples/bench/joyent.sh            10 s a run, all servers that are installed
#   TIME=1m SERVERS="nginx tidegate" examples/bench/joyent.sh
. "$(dirname -- "$0")/servers.sh"

table "ab -n 1000 -c 10" -n 1000 -c 10 --no-keepalive URL
table "light siege, 47 requests/s on a schedule" -c 10 -t "$TIME" --rate 47 --no-keepalive URL
table "ab -n 10000 -c 200" -n 10000 -c 200 --no-keepalive URL
for burst in 1 2 3; do
    table "burst $burst: 1000 connections at once" -n 20000 -c 1000 --no-keepalive URL
    table "pause $burst: 2 connections" -n 200 -c 2 --no-keepalive URL
done
