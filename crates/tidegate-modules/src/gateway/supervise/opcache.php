<?php
// Tells the server how the cache of compiled scripts is. No URL leads here.
header('Content-Type: application/json');
$status = function_exists('opcache_get_status') ? @opcache_get_status(false) : null;
if ($status === null) {
    $told = ['state' => 'absent'];
} elseif ($status === false) {
    $told = ['state' => ini_get('opcache.restrict_api') ? 'restricted' : 'off'];
} else {
    $memory = $status['memory_usage'] ?? [];
    $numbers = $status['opcache_statistics'] ?? [];
    $told = [
        'state' => $status['opcache_enabled'] ? 'on' : 'off',
        'figures' => [
            'used' => $memory['used_memory'] ?? 0,
            'free' => $memory['free_memory'] ?? 0,
            'wasted' => $memory['wasted_memory'] ?? 0,
            'hits' => $numbers['hits'] ?? 0,
            'misses' => $numbers['misses'] ?? 0,
            'scripts' => $numbers['num_cached_scripts'] ?? 0,
            'restarts_out_of_memory' => $numbers['oom_restarts'] ?? 0,
            'restarts_hash' => $numbers['hash_restarts'] ?? 0,
            'restarts_manual' => $numbers['manual_restarts'] ?? 0,
        ],
    ];
}
echo json_encode($told);
