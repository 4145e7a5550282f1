<?php
header("Content-Type: text/plain");
echo "PHP ", PHP_VERSION, " by ", PHP_SAPI, "\n";
