<?php
require __DIR__ . '/cases.php';

const PREPARES = ['native' => [], 'emulated' => [PDO::ATTR_EMULATE_PREPARES => true], 'disabled' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => true]];

function connect(?string $ticket = null, string $more = '', array $attributes = []): PDO
{
    $dsn = 'pgsql:' . str_replace(' ', ';', preg_replace("/ options='-c fence.ticket=/", " options='-c\tfence.ticket=", dsn($ticket, $more)));
    return new PDO(str_replace("\t", ' ', $dsn), null, null, $attributes + [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}

function one(PDO $c, string $sql, array $args = [])
{
    $s = $c->prepare($sql);
    $s->execute($args);
    $v = $s->fetchColumn();
    $s->closeCursor();
    return $v;
}

function write(PDO $c, int $n = 1): int
{
    global $resource;
    $s = $c->prepare('insert into guarded values (?, ?)');
    $s->execute([$resource, $n]);
    return $s->rowCount();
}

// error expects an error and gives it.
function error(callable $body): PDOException
{
    try {
        $body();
    } catch (PDOException $e) {
        return $e;
    }
    throw new Exception('no error');
}

function state(callable $body): string { return (string) error($body)->errorInfo[0]; }

// fenced wants the session's end. Of several errors libpq keeps the last for this driver, that the connection is closed, as
// where an administrator ends the backend; the next connect tells why.
function fenced(callable $body, string $stale): void
{
    $e = error($body);
    if (!str_contains($e->getMessage(), 'LG001')) has($e->getMessage(), 'connection');
    has(error(fn() => connect($stale))->getMessage(), 'LG001');
}

function fence(): void { connect(successor()); }

test('ticket_by_options', fn() => equal(write(connect()), 1));
test('malformed_ticket', fn() => has(error(fn() => connect('nonsense'))->getMessage(), 'LG003'));
test('stale_at_connect', function () {
    $stale = holder();
    fence();
    has(error(fn() => connect($stale))->getMessage(), 'LG001', 'DETAIL', 'HINT', 'floor');
});
foreach (PREPARES as $how => $attributes) {
    $open = fn(?string $ticket = null) => connect($ticket, '', $attributes);
    test("{$how}_no_ticket", function () use ($open) {
        $c = $open('');
        equal(state(fn() => $c->query('select 1')), 'LG002');
        equal(state(fn() => one($c, 'select ?::int', [1])), 'LG002');
    });
    test("{$how}_queries", function () use ($open) {
        $c = $open();
        $s = $c->prepare('select :n::int + 1');
        for ($n = 0; $n < 20; $n++) {
            $s->execute(['n' => $n]);
            equal((int) $s->fetchColumn(), $n + 1);
            equal(state(fn() => one($c, 'select 1/?::int', [0])), '22012');
            equal(write($c), 1);
        }
    });
    test("{$how}_ticket_by_set", function () use ($open) {
        $c = $open('');
        $c->exec("set fence.ticket = '" . holder() . "'");
        equal(write($c), 1);
        $c->exec('reset fence.ticket');
        equal(state(fn() => write($c)), 'LG002');
    });
    test("{$how}_ticket_by_set_local", function () use ($open) {
        $c = $open('');
        for ($n = 0; $n < 5; $n++) {
            $c->beginTransaction();
            $c->exec("set local fence.ticket = '" . holder() . "'");
            write($c);
            $c->commit();
            equal(state(fn() => write($c)), 'LG002');
        }
    });
    test("{$how}_ticket_by_a_prepared_set", function () use ($open) {
        $c = $open('');
        $s = $c->prepare("set fence.ticket = '" . holder() . "'");
        $s->execute();
        equal(write($c), 1);
    });
    test("{$how}_fenced_while_idle", function () use ($open) {
        $stale = holder();
        $c = $open();
        fence();
        fenced(fn() => one($c, 'select 1'), $stale);
    });
    test("{$how}_fenced_in_a_transaction", function () use ($open) {
        $stale = holder();
        $c = $open();
        $c->beginTransaction();
        write($c, 777);
        fence();
        fenced(fn() => $c->commit(), $stale);
        equal((int) one(connect(), 'select count(*) from guarded where n = 777'), 0);
    });
    test("{$how}_fenced_while_a_statement_runs", function () use ($open) {
        $stale = holder();
        $c = $open();
        $c->beginTransaction();
        write($c, 778);
        $child = whenAsleep((int) one($c, 'select pg_backend_pid()'), fn() => fence());
        successor(); // as the child does
        fenced(fn() => one($c, 'select pg_sleep(20)'), $stale);
        pcntl_waitpid($child, $status);
    });
    test("{$how}_rolled_back", function () use ($open) {
        $c = $open();
        $c->beginTransaction();
        write($c, 779);
        equal(state(fn() => one($c, 'select nothing')), '42703');
        equal(state(fn() => one($c, 'select 1')), '25P02');
        $c->rollBack();
        equal((int) one($c, 'select count(*) from guarded where n = 779'), 0);
    });
    test("{$how}_rows_of_256_kB", function () use ($open) {
        global $large;
        $s = $open()->prepare('select ?::text from generate_series(1, 40)');
        $s->execute([$large]);
        $rows = $s->fetchAll(PDO::FETCH_COLUMN);
        equal([count($rows), $rows[39] === $large], [40, true]);
    });
    test("{$how}_another_resource_is_refused", function () use ($open) {
        equal(state(fn() => one($open(), 'insert into guarded values (?, 1)', ['another'])), 'LG002');
    });
}
test('persistent_connection_is_fenced', function () {
    $stale = holder();
    $c = connect($stale, '', [PDO::ATTR_PERSISTENT => true]);
    equal(write($c), 1);
    fence();
    error(fn() => write($c));
    $c = null;
    has(error(fn() => connect($stale, '', [PDO::ATTR_PERSISTENT => true]))->getMessage(), 'LG001');
});
test('pool_reset_keeps_the_fence', function () {
    $c = connect();
    $c->exec('discard all');
    $c->exec('reset all');
    equal(write($c), 1);
});
test('copy', function () {
    global $resource;
    $c = connect();
    equal($c->pgsqlCopyFromArray('item', array_map(fn($n) => "$n\tx\t1", range(1000, 20999))), true);
    equal(count($c->pgsqlCopyToArray('item')) >= 20000, true);
    equal($c->pgsqlCopyFromArray('guarded', ["$resource\t5"]), true);
    equal(state(fn() => $c->pgsqlCopyFromArray('item', ["a\tb"])), '22P02');
    equal(state(fn() => $c->pgsqlCopyFromArray('guarded', ["another\t5"])), 'LG002');
    equal((int) one($c, 'select 1'), 1);
});
test('copy_without_a_ticket', fn() => equal(state(fn() => connect('')->pgsqlCopyFromArray('item', ["1\tx\t1"])), 'LG002'));
test('listen_notify', function () {
    [$a, $b] = [connect(), connect()];
    $a->exec('listen news');
    $b->exec("notify news, 'payload'");
    $n = $a->pgsqlGetNotify(PDO::FETCH_ASSOC, 20000);
    equal([$n['message'], $n['payload'], (int) $n['pid']], ['news', 'payload', $b->pgsqlGetPid()]);
});
test('large_object', function () {
    global $large;
    $c = connect();
    $c->beginTransaction();
    $oid = $c->pgsqlLOBCreate();
    $lo = $c->pgsqlLOBOpen($oid, 'w');
    fwrite($lo, $large);
    fclose($lo);
    $lo = $c->pgsqlLOBOpen($oid, 'r');
    equal(stream_get_contents($lo) === $large, true);
    fclose($lo);
    equal($c->pgsqlLOBUnlink($oid), true);
    $c->commit();
});
test('bytes', function () {
    $bytes = implode('', array_map('chr', range(0, 255)));
    $s = connect()->prepare('select ?::bytea');
    $s->bindValue(1, $bytes, PDO::PARAM_LOB);
    $s->execute();
    equal(stream_get_contents($s->fetchColumn()), $bytes);
});
test('scrollable_cursor', function () {
    $c = connect();
    $c->beginTransaction();
    $s = $c->prepare('select generate_series(1, 100)', [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
    $s->execute();
    equal((int) $s->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_ABS, 50)[0], 50);
    equal((int) $s->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_PRIOR)[0], 49);
    $s = null;
    $c->commit();
});
test('isolation_levels', function () {
    $c = connect();
    foreach (['serializable', 'repeatable read'] as $level) {
        $c->exec("begin isolation level $level");
        equal(one($c, 'show transaction_isolation'), $level);
        $c->exec('rollback');
    }
});
test('statement_timeout', function () {
    $c = connect();
    $c->exec('set statement_timeout = 50');
    equal(state(fn() => one($c, 'select pg_sleep(20)')), '57014');
});
foreach (['require', 'verify-ca', 'verify-full'] as $mode) {
    test("tls_{$mode}_and_scram", function () use ($mode) {
        $stale = holder();
        $c = connect(null, "user=scram password=secret sslmode=$mode sslrootcert=" . getenv('ROOTCERT'));
        equal(write($c), 1);
        fence();
        fenced(fn() => one($c, 'select 1'), $stale);
    });
}
test('wrong_password', fn() => has(error(fn() => connect(null, 'user=scram password=wrong'))->getMessage(), 'password authentication failed'));
test('several_statements', function () {
    $c = connect();
    equal(state(fn() => $c->exec("insert into item values (50, 'a', 1); select 1/0")), '22012');
    equal((int) one($c, 'select count(*) from item where id = 50'), 0);
});
test('two_phase_commit_is_refused', function () {
    $c = connect();
    $c->beginTransaction();
    write($c, 950);
    equal(state(fn() => $c->exec("prepare transaction 'x'")), 'LG006');
    $c->rollBack();
});

run();
