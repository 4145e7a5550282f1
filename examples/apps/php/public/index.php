<?php
// A page that shows what reached PHP, takes an upload, and counts visits in a session.
declare(strict_types=1);

if (($_SERVER['PATH_INFO'] ?? '') === '/request') {
    header('Content-Type: application/json');
    $seen = array_filter($_SERVER, fn ($name) => !str_starts_with($name, 'argv'), ARRAY_FILTER_USE_KEY);
    echo json_encode($seen, JSON_PRETTY_PRINT | JSON_INVALID_UTF8_SUBSTITUTE);
    exit;
}
if (($_SERVER['PATH_INFO'] ?? '') === '/digest') {
    $digest = hash_init('sha256');
    $length = hash_update_stream($digest, fopen('php://input', 'rb'));
    header('Content-Type: application/json');
    echo json_encode(['length' => $length, 'sha256' => hash_final($digest)]);
    exit;
}
session_start();
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
$file = $_FILES['file'] ?? null;
?>
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>PHP</title>
<h1>PHP <?= PHP_VERSION ?> (<?= PHP_SAPI ?>)</h1>
<p>visit <?= $_SESSION['visits'] ?> by process <?= getmypid() ?></p>
<?php if ($file !== null && $file['error'] === UPLOAD_ERR_OK): ?>
<p>got <?= htmlspecialchars($file['name']) ?>, <?= $file['size'] ?> bytes,
   sha256 <?= hash_file('sha256', $file['tmp_name']) ?></p>
<?php endif ?>
<form method="post" enctype="multipart/form-data"><input type="file" name="file"> <button>Upload</button></form>
</html>
