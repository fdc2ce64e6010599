<?php
// What the cases of PHP's drivers share: the tickets in ascending order, and how a case is told.
error_reporting(E_ALL & ~E_WARNING & ~E_NOTICE);
ini_set('display_errors', 'stderr');

$resource = getenv('RESOURCE');
$tickets = explode(' ', getenv('TICKETS'));
$at = 0;
$large = str_repeat('0123456789abcdef', 256 * 1024 / 16);
$cases = [];

function holder(): string { global $tickets, $at; return $tickets[$at]; }

function successor(): string { global $at; $at++; return holder(); }

function test(string $name, callable $body): void { global $cases; $cases[$name] = $body; }

function equal($got, $want): void
{
    if ($got !== $want) throw new Exception('got ' . substr(var_export($got, true), 0, 300) . ', want ' . substr(var_export($want, true), 0, 300));
}

function has(string $text, string ...$parts): void
{
    foreach ($parts as $part) if (!str_contains($text, $part)) throw new Exception("got $text, want $part");
}

// dsn is libpq's connection string for the holder's ticket, another one, or none; what is in more comes last and counts.
function dsn(?string $ticket = null, string $more = ''): string
{
    $ticket ??= holder();
    $options = $ticket === '' ? '' : " options='-c fence.ticket=$ticket'";
    return 'host=' . getenv('PGHOST') . ' port=' . getenv('PGPORT') . ' dbname=' . getenv('PGDATABASE') . ' user=' . getenv('PGUSER') . "$options $more";
}

const ASLEEP = "select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')";

// whenAsleep is a child that does something when the backend sleeps: PHP has no threads. It has connections of its own.
function whenAsleep(int $pid, callable $then): int
{
    $child = pcntl_fork();
    if ($child === 0) {
        $watch = pg_connect(dsn(), PGSQL_CONNECT_FORCE_NEW);
        while (pg_fetch_result(pg_query_params($watch, ASLEEP, [$pid]), 0, 0) !== 't') { /* not yet */ }
        $then();
        posix_kill(posix_getpid(), SIGKILL); // nothing of the parent's is closed
    }
    return $child;
}

function run(): void
{
    global $cases;
    $failed = false;
    foreach ($cases as $name => $body) {
        try {
            $body();
            echo "ok $name\n";
        } catch (Throwable $e) {
            $failed = true;
            fwrite(STDERR, "$name: $e\n");
            echo "not ok $name: " . preg_replace('/\s+/', ' ', $e->getMessage()) . "\n";
        }
    }
    exit($failed ? 1 : 0);
}
