<?php
require __DIR__ . '/cases.php';

function connect(?string $ticket = null, string $more = '')
{
    $c = pg_connect(dsn($ticket, $more), PGSQL_CONNECT_FORCE_NEW);
    if (!$c) throw new Exception('cannot connect: ' . error_get_last()['message']);
    return $c;
}

// state executes and gives the first error's code, the driver's own message where there is none, or ''.
function state($c, string $sql, ?array $args = null): string
{
    if (!($args === null ? pg_send_query($c, $sql) : pg_send_query_params($c, $sql, $args))) return pg_last_error($c);
    $first = '';
    while ($r = pg_get_result($c)) {
        $code = pg_result_error_field($r, PGSQL_DIAG_SQLSTATE);
        if ($code && $first === '') $first = $code;
    }
    return $first;
}

function one($c, string $sql, array $args = [])
{
    $r = pg_query_params($c, $sql, $args);
    if (!$r) throw new Exception(pg_last_error($c));
    return pg_fetch_result($r, 0, 0);
}

function write($c, int $n = 1): string
{
    global $resource;
    return state($c, 'insert into guarded values ($1, $2)', [$resource, $n]);
}

function fence(): void { pg_close(connect(successor())); }

function ended($c): void { equal(pg_connection_status($c), PGSQL_CONNECTION_BAD); }

function refused(string $code, ?string $ticket, string $more = ''): string
{
    try {
        connect($ticket, $more);
    } catch (Exception $e) {
        has($e->getMessage(), $code);
        return $e->getMessage();
    }
    throw new Exception('let in');
}

test('ticket_by_options', fn() => equal(write(connect()), ''));
test('ticket_by_pgoptions', function () {
    putenv('PGOPTIONS=-c fence.ticket=' . holder());
    equal(write(connect('')), '');
    putenv('PGOPTIONS');
});
test('other_options_beside_the_ticket', function () {
    $c = connect('', "options='-c work_mem=5MB -c fence.ticket=" . holder() . "' application_name=cases");
    equal([one($c, 'show work_mem'), one($c, 'show application_name'), write($c)], ['5MB', 'cases', '']);
});
test('no_ticket', function () {
    $c = connect('');
    equal([state($c, 'select 1'), state($c, 'select $1::int', [1])], ['LG002', 'LG002']);
    equal(pg_connection_status($c), PGSQL_CONNECTION_OK);
});
test('malformed_ticket', fn() => refused('LG003', 'nonsense'));
test('set_ticket', function () {
    $c = connect('');
    equal(state($c, "set fence.ticket = '" . holder() . "'"), '');
    equal(write($c), '');
    equal(str_contains(one($c, 'show fence.ticket'), holder()), false);
    equal([state($c, 'reset fence.ticket'), write($c)], ['', 'LG002']);
});
test('set_local_ticket', function () {
    $c = connect('');
    for ($n = 0; $n < 3; $n++) {
        equal([state($c, 'begin'), state($c, "set local fence.ticket = '" . holder() . "'"), write($c), state($c, 'commit')], ['', '', '', '']);
        equal(write($c), 'LG002');
    }
});
test('pool_reset_keeps_the_fence', function () {
    $c = connect();
    equal([state($c, 'discard all'), state($c, 'reset all'), write($c)], ['', '', '']);
});
test('ticket_late_in_a_transaction', function () {
    $c = connect();
    equal([state($c, 'begin'), state($c, 'select 1'), state($c, "set fence.ticket = '" . holder() . "'")], ['', '', 'LG006']);
    state($c, 'rollback');
});
test('ticket_by_set_config', fn() => equal(state(connect(), "select set_config('fence.ticket', '" . holder() . "', false)"), 'LG006'));
test('another_resource_is_refused', fn() => equal(state(connect(), "insert into guarded values ('another', 1)"), 'LG002'));
test('stale_at_connect', function () {
    $stale = holder();
    fence();
    has(refused('LG001', $stale), 'DETAIL', 'HINT', 'floor');
});
test('fenced_while_idle', function () {
    $c = connect();
    fence();
    equal(state($c, 'select 1'), 'LG001');
    ended($c);
});
test('fenced_while_idle_by_the_simple_call', function () {
    $c = connect();
    fence();
    equal(pg_query($c, 'select 1'), false); // of several errors it keeps the last: the connection is closed
    has(pg_last_error($c), 'closed the connection');
});
test('ping_and_reset_are_refused', function () {
    $c = connect();
    fence();
    pg_query($c, 'select 1');
    equal([pg_ping($c), pg_connection_reset($c)], [false, false]);
});
test('persistent_connection_is_fenced', function () {
    $ticket = holder();
    $c = pg_pconnect(dsn($ticket));
    equal(write($c), '');
    fence();
    pg_query($c, 'select 1');
    equal(pg_pconnect(dsn($ticket)), false); // it is found dead, and the next is refused
});
test('fenced_in_a_transaction', function () {
    $c = connect();
    equal([state($c, 'begin'), write($c, 777)], ['', '']);
    fence();
    equal(state($c, 'commit'), 'LG001');
    equal(one(connect(), 'select count(*) from guarded where n = 777'), '0');
});
test('fenced_while_a_statement_runs', function () {
    foreach (['LG001' => 'begin', 'LG008' => ''] as $want => $before) {
        $c = connect();
        state($c, $before);
        pg_send_query($c, 'select pg_sleep(20)');
        $watch = connect();
        while (one($watch, ASLEEP, [pg_get_pid($c)]) !== 't') { /* not yet */ }
        fence();
        equal(pg_result_error_field(pg_get_result($c), PGSQL_DIAG_SQLSTATE), $want);
    }
});
test('fenced_in_copy', function () {
    $c = connect();
    pg_query($c, 'copy item from stdin');
    pg_put_line($c, "800000\tx\t1\n");
    fence();
    pg_put_line($c, "\\.\n");
    equal(pg_end_copy($c) && pg_connection_status($c) === PGSQL_CONNECTION_OK && one($c, 'select 1') === '1', false);
    equal(one(connect(), 'select count(*) from item where id = 800000'), '0');
});
test('fenced_between_fetches', function () {
    $c = connect();
    equal([state($c, 'begin'), state($c, 'declare c cursor for select generate_series(1, 100000000)'), state($c, 'fetch 1000 from c')], ['', '', '']);
    fence();
    equal(state($c, 'fetch 1000 from c'), 'LG001');
});
test('types_and_nulls', function () {
    $c = connect();
    equal([one($c, 'select $1::text', ['ä€😀']), one($c, 'select $1::text', [null]), one($c, 'select $1::int8', ['9223372036854775807'])], ['ä€😀', null, '9223372036854775807']);
    $bytes = implode('', array_map('chr', range(0, 255)));
    equal(pg_unescape_bytea(one($c, 'select $1::bytea', [pg_escape_bytea($c, $bytes)])), $bytes);
});
test('rows_of_256_kB', function () {
    global $large;
    $r = pg_query_params(connect(), 'select $1::text from generate_series(1, 40)', [$large]);
    equal([pg_num_rows($r), pg_fetch_result($r, 39, 0) === $large], [40, true]);
});
test('prepared_statements', function () {
    $c = connect();
    for ($n = 0; $n < 100; $n++) {
        pg_prepare($c, "p$n", "select \$1::int + $n");
        equal(pg_fetch_result(pg_execute($c, "p$n", [1]), 0, 0), (string) ($n + 1));
    }
    equal(state($c, 'deallocate all'), '');
    equal(pg_execute($c, 'p1', [1]), false);
});
test('begin_and_commit_kept_prepared_with_a_ticket_each', function () {
    $c = connect();
    pg_prepare($c, 'b', 'begin');
    pg_prepare($c, 'c', 'commit');
    state($c, 'reset fence.ticket');
    for ($n = 0; $n < 3; $n++) {
        pg_execute($c, 'b', []);
        equal([state($c, "set local fence.ticket = '" . holder() . "'"), write($c)], ['', '']);
        pg_execute($c, 'c', []);
        equal(write($c), 'LG002');
    }
});
test('rows_one_by_one', function () {
    $c = connect();
    pg_send_query($c, 'select generate_series(1, 1000)');
    $sum = 0;
    while ($r = pg_get_result($c)) while ($row = pg_fetch_row($r)) $sum += (int) $row[0];
    equal($sum, 500500);
});
test('savepoints', function () {
    $c = connect();
    equal([state($c, 'begin'), state($c, 'savepoint a'), state($c, 'select nothing'), state($c, 'select 1'), state($c, 'rollback to a'), write($c, 2), state($c, 'commit')],
        ['', '', '42703', '25P02', '', '', '']);
});
test('isolation_levels', function () {
    $c = connect();
    foreach (['serializable', 'repeatable read', 'read committed'] as $level) {
        state($c, "begin isolation level $level read only");
        equal([one($c, 'show transaction_isolation'), write($c), state($c, 'rollback')], [$level, '25006', '']);
    }
});
test('copy_in', function () {
    $c = connect();
    equal(pg_copy_from($c, 'item', array_map(fn($n) => "$n\tx\t1\n", range(1000, 20999))), true);
    equal(one($c, 'select count(*) from item where id between 1000 and 20999'), '20000');
});
test('copy_in_bad_data', function () {
    $c = connect();
    equal(pg_copy_from($c, 'item', ["a\tb\n"]), false);
    equal(one($c, 'select 1'), '1');
});
test('copy_into_the_guarded_table', function () {
    global $resource;
    $c = connect();
    equal(pg_copy_from($c, 'guarded', ["another\t5\n"]), false);
    has(pg_last_error($c), 'fence');
    equal(pg_copy_from($c, 'guarded', ["$resource\t5\n"]), true);
});
test('copy_out', fn() => equal(count(pg_copy_to(connect(), '(select generate_series(1, 50000))')), 50000));
test('bulk_functions', function () {
    global $resource;
    $c = connect();
    equal(pg_insert($c, 'guarded', ['resource' => $resource, 'n' => 60]) !== false, true);
    equal(count(pg_select($c, 'guarded', ['n' => 60])), 1);
    equal(pg_update($c, 'guarded', ['n' => 61], ['n' => 60]), true);
    equal(pg_delete($c, 'guarded', ['n' => 61]), true);
});
test('listen_notify', function () {
    [$a, $b] = [connect(), connect()];
    equal([state($a, 'listen news'), state($b, "select pg_notify('news', 'payload')")], ['', '']);
    while (!($n = pg_get_notify($a))) state($a, 'select 1'); // what asks takes the rest
    equal([$n['message'], $n['payload'], (int) $n['pid']], ['news', 'payload', pg_get_pid($b)]);
});
test('cancel_reaches_its_own_backend_only', function () {
    [$a, $b, $watch] = [connect(), connect(), connect()];
    pg_send_query($a, 'select pg_sleep(20)');
    pg_send_query($b, "select 'not cancelled' from pg_sleep(0.5)");
    while (one($watch, ASLEEP, [pg_get_pid($a)]) !== 't') { /* not yet */ }
    equal(pg_cancel_query($a), true); // it takes the replies, too
    equal(pg_fetch_result(pg_get_result($b), 0, 0), 'not cancelled');
    equal(one($a, 'select 1'), '1');
});
test('statement_timeout', function () {
    $c = connect();
    equal([state($c, 'set statement_timeout = 50'), state($c, 'select pg_sleep(20)')], ['', '57014']);
});
test('large_object', function () {
    global $large;
    $c = connect();
    state($c, 'begin');
    $oid = pg_lo_create($c);
    $lo = pg_lo_open($c, $oid, 'r+');
    pg_lo_write($lo, $large);
    pg_lo_seek($lo, 0, PGSQL_SEEK_SET);
    equal(pg_lo_read($lo, strlen($large)) === $large, true);
    pg_lo_close($lo);
    equal([pg_lo_unlink($c, $oid), state($c, 'commit')], [true, '']);
});
test('large_object_fenced', function () {
    $c = connect();
    state($c, 'begin');
    $lo = pg_lo_open($c, pg_lo_create($c), 'w');
    fence();
    equal(pg_lo_write($lo, 'x'), false);
    ended($c);
});
test('large_object_without_a_ticket', function () {
    $c = connect('');
    state($c, 'begin');
    equal(pg_lo_create($c), false);
});
foreach (['require', 'verify-ca', 'verify-full'] as $mode) {
    test("tls_{$mode}_and_scram", function () use ($mode) {
        $c = connect(null, "user=scram password=secret sslmode=$mode sslrootcert=" . getenv('ROOTCERT'));
        equal(write($c), '');
        fence();
        equal(state($c, 'select 1') !== '', true);
        ended($c);
    });
}
test('wrong_password', fn() => refused('password authentication failed', null, 'user=scram password=wrong'));
test('several_hosts', function () {
    foreach (['any', 'read-write', 'primary', 'prefer-standby'] as $attrs) {
        equal(write(connect(null, 'host=127.0.0.1,127.0.0.1 port=1,' . getenv('PGPORT') . " target_session_attrs=$attrs")), '');
    }
});
test('many_connections', function () {
    $all = array_map(fn() => connect(), range(1, 20));
    foreach ($all as $c) pg_send_query($c, 'select pg_sleep(0.1)');
    foreach ($all as $c) equal(pg_result_status(pg_get_result($c)), PGSQL_TUPLES_OK);
});
test('asynchronous_connect', function () {
    $c = pg_connect(dsn(), PGSQL_CONNECT_FORCE_NEW | PGSQL_CONNECT_ASYNC);
    while (($s = pg_connect_poll($c)) !== PGSQL_POLLING_OK) equal($s !== PGSQL_POLLING_FAILED, true);
    equal(write($c), '');
});
test('several_statements', function () {
    $c = connect();
    equal(pg_fetch_result(pg_query($c, 'select 1; select 2; select 3'), 0, 0), '3');
    equal(state($c, "insert into item values (50, 'a', 1); select 1/0"), '22012');
    equal(one($c, 'select count(*) from item where id = 50'), '0');
});
test('notices', function () {
    $c = connect();
    pg_query($c, "do $$ begin raise notice 'a'; raise warning '%', repeat('w', 20000); end $$");
    equal(array_map(fn($n) => substr($n, 0, 7), pg_last_notice($c, PGSQL_NOTICE_ALL)), ['NOTICE:', 'WARNING']);
});
test('two_phase_commit_is_refused', function () {
    $c = connect();
    equal([state($c, 'begin'), write($c, 950), state($c, "prepare transaction 'x'"), state($c, 'rollback')], ['', '', 'LG006', '']);
});

run();
