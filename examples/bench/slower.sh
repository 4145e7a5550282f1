#!/bin/sh
# The tables of "Why was (is) lighttpd slower?" (2009), of the servers of today: ab's one small file, and siege's
# list of a site's URLs, at 25 and 100 connections. What counted there was the last column: lighttpd reached an
# availability of 98.57 % and stopped.
#
#   examples/bench/slower.sh            10 s a run, all servers that are installed
#   TIME=1m SERVERS="nginx tidegate" examples/bench/slower.sh
. "$(dirname -- "$0")/servers.sh"

table "ab -n 10000 -c 25, one file of 4 KiB, closed each time" -n 10000 -c 25 --no-keepalive URL
table "ab -k -n 10000 -c 25, one file of 4 KiB, kept alive" -n 10000 -c 25 URL
table "siege -b -i -c 25 -t $TIME, 150 URLs, closed each time" -c 25 -t "$TIME" --no-keepalive -f LIST
table "siege -b -i -c 100 -t $TIME, 150 URLs, closed each time" -c 100 -t "$TIME" --no-keepalive -f LIST
table "siege -b -i -c 100 -t $TIME, 150 URLs, kept alive" -c 100 -t "$TIME" -f LIST
