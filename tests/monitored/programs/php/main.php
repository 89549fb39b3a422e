<?php
function numbers() { for ($i = 0; $i < 50000; $i++) yield $i => md5((string)$i); }
$count = [];
foreach (numbers() as $i => $hash) { $count[$hash[0]] = ($count[$hash[0]] ?? 0) + $i; }
ksort($count);
echo json_encode($count), "\n";
for ($i = 0; $i < 5; $i++) {
    $process = proc_open(['sh', '-c', "cat; echo problem >&2; exit $i"], [['pipe', 'r'], ['pipe', 'w'], ['pipe', 'w']], $pipes);
    fwrite($pipes[0], "input $i ");
    fclose($pipes[0]);
    echo stream_get_contents($pipes[1]), trim(stream_get_contents($pipes[2])), ' ', proc_close($process), "\n";
}
exec('echo one; echo two; exit 4', $lines, $code);
echo count($lines), " $code\n";
echo preg_match_all('/\bw\w+/', str_repeat('words with w ', 20000)), "\n";
register_shutdown_function(function () { echo "shutdown\n"; });
exit(13);
