require 'pg'
require 'uri'
require_relative 'cases'

def connect(ticket = Holder.ticket, **more)
  options = more.delete(:options) || (ticket.empty? ? '' : "-c fence.ticket=#{ticket}")
  c = PG.connect(options: options, **more)
  c.set_notice_processor { |_| }
  OPENED << c
  c
end

def one(conn, sql, *args) = (args.empty? ? conn.exec(sql) : conn.exec_params(sql, args)).getvalue(0, 0)

def write(conn, n = 1) = conn.exec_params('insert into guarded values ($1, $2)', [RESOURCE, n]).cmd_tuples

def fence = PG.connect(options: "-c fence.ticket=#{Holder.next}").close

# state expects an error of a statement, and gives its code.
def state
  yield
rescue PG::Error => e
  e.result ? e.result.error_field(PG::PG_DIAG_SQLSTATE) : e.message
else
  raise 'no error'
end

# refused expects that a connect is refused with a code.
def refused(code, ticket)
  connect(ticket)
rescue PG::ConnectionBad => e
  raise "got #{e.message}, want #{code}" unless e.message.include?(code)
  e.message
else
  raise 'let in'
end

# fenced expects the session's end. Of several errors libpq's own loop keeps the last, that the connection is closed, as it
# does where an administrator ends the backend; the next connect tells why.
def fenced
  got = state { yield }
  raise "got #{got}" unless ['LG001', 'closed the connection', 'no connection to the server', 'get socket descriptor'].any? { |m| got.include?(m) }
  begin
    PG.connect(options: "-c fence.ticket=#{Holder.before}")
  rescue PG::ConnectionBad => e
    raise e unless e.message.include?('LG001')
  else
    raise 'let in again'
  end
end

# first_code is that of the first error, which the driver has where results are taken one by one.
def first_code(conn)
  while (r = conn.get_result)
    code = r.error_field(PG::PG_DIAG_SQLSTATE)
    return code if code
  end
end

def sleeping(conn, sql = 'select pg_sleep(20)')
  t = Thread.new { yield conn, sql }
  t.report_on_exception = false
  watch = connect
  asleep = "select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')"
  nil until one(watch, asleep, conn.backend_pid) == 't'
  t
end

test('ticket_by_options') { equal write(connect), 1 }
test('ticket_by_pgoptions') do
  ENV['PGOPTIONS'] = "-c fence.ticket=#{Holder.ticket}"
  begin
    c = PG.connect
    equal write(c), 1
    c.close
  ensure
    ENV.delete('PGOPTIONS')
  end
end
test('ticket_in_a_url') do
  options = URI.encode_www_form_component("-c fence.ticket=#{Holder.ticket}").gsub('+', '%20')
  c = PG.connect("postgresql://#{ENV['PGUSER']}@#{ENV['PGHOST']}:#{ENV['PGPORT']}/#{ENV['PGDATABASE']}?options=#{options}")
  equal write(c), 1
  c.close
end
test('other_options_beside_the_ticket') do
  c = connect(options: "-c work_mem=5MB -c fence.ticket=#{Holder.ticket}", application_name: 'cases')
  equal [one(c, 'show work_mem'), one(c, 'show application_name')], %w[5MB cases]
end
test('no_ticket') do
  c = connect('')
  equal state { c.exec('select 1') }, 'LG002'
  equal state { c.exec_params('select $1::int', [1]) }, 'LG002'
  equal c.finished?, false
end
test('malformed_ticket') { refused('LG003', 'nonsense') }
test('set_ticket') do
  c = connect('')
  c.exec("set fence.ticket = '#{Holder.ticket}'")
  equal write(c), 1
  equal one(c, 'show fence.ticket').include?(Holder.ticket), false
  c.exec('reset fence.ticket')
  equal state { write(c) }, 'LG002'
end
test('set_local_ticket') do
  c = connect('')
  3.times do
    c.transaction do
      c.exec("set local fence.ticket = '#{Holder.ticket}'")
      write(c)
    end
    equal state { write(c) }, 'LG002'
  end
end
test('set_ticket_as_a_prepared_statement') do
  c = connect('')
  c.prepare('show', "set fence.ticket = '#{Holder.ticket}'")
  c.exec_prepared('show')
  equal write(c), 1
end
test('pool_reset_keeps_the_fence') do
  c = connect
  c.exec('discard all')
  c.exec('reset all')
  equal write(c), 1
end
test('ticket_late_in_a_transaction') do
  c = connect('')
  c.exec('begin')
  c.exec("set fence.ticket = '#{Holder.ticket}'")
  c.exec('select 1')
  equal state { c.exec("set fence.ticket = '#{Holder.ticket}'") }, 'LG006'
  c.exec('rollback')
end
test('ticket_by_set_config') { equal state { one(connect, "select set_config('fence.ticket', '#{Holder.ticket}', false)") }, 'LG006' }
test('another_resource_is_refused') { equal state { connect.exec("insert into guarded values ('another', 1)") }, 'LG002' }
test('stale_at_connect') do
  stale = Holder.ticket
  fence
  message = refused('LG001', stale)
  equal %w[DETAIL HINT floor].all? { |part| message.include?(part) }, true
end

test('fenced_while_idle') do
  c = connect
  fence
  fenced { c.exec('select 1') }
  equal c.status, PG::CONNECTION_BAD
end
test('reason_by_single_results') do
  c = connect
  fence
  c.send_query('select 1')
  equal first_code(c), 'LG001'
end
test('reset_connects_with_the_stale_ticket') do
  c = connect
  fence
  begin
    c.reset
  rescue PG::ConnectionBad => e
    raise e unless e.message.include?('LG001')
  else
    raise 'let in'
  end
end
test('fenced_in_a_transaction') do
  c = connect
  c.exec('begin')
  write(c, 777)
  fence
  fenced { c.exec('commit') }
  equal one(connect, 'select count(*) from guarded where n = 777'), '0'
end
test('fenced_while_a_statement_runs') do
  c = connect
  c.exec('begin')
  t = sleeping(c) { |conn, sql| conn.send_query(sql); first_code(conn) }
  fence
  equal t.value, 'LG001'
end
test('fenced_while_a_statement_of_its_own_runs') do
  c = connect
  t = sleeping(c) { |conn, sql| conn.send_query(sql); first_code(conn) }
  fence
  equal t.value, 'LG008'
end
test('fenced_in_copy') do
  c = connect
  fenced do
    c.copy_data('copy item from stdin') do
      c.put_copy_data("800000\tx\t1\n")
      fence
    end
  end
  equal one(connect, 'select count(*) from item where id = 800000'), '0'
end
test('fenced_while_rows_stream') do
  c = connect
  c.exec('begin')
  c.send_query("select generate_series(1, 100000000), repeat('x', 100)")
  c.set_single_row_mode
  c.get_result
  t = Thread.new { fence }
  equal first_code(c), 'LG001'
  t.join
end
test('fenced_while_it_waits_for_a_notification') do
  c = connect
  c.exec('listen news')
  fence
  begin
    c.wait_for_notify(20)
  rescue PG::Error
    # the connection is closed
  end
  fenced { c.exec('select 1') }
end
test('types') do
  c = connect
  c.type_map_for_results = PG::BasicTypeMapForResults.new(c)
  c.type_map_for_queries = PG::BasicTypeMapForQueries.new(c)
  equal one(c, 'select $1::int8', 2**62), 2**62
  equal one(c, 'select $1::text', 'ä€😀'), 'ä€😀'
  equal one(c, 'select $1::int[]', [1, nil, 3]), [1, nil, 3]
  equal one(c, 'select $1::bool', true), true
  equal one(c, 'select $1::text', nil), nil
end
test('binary') do
  c = connect
  bytes = (0..255).to_a.pack('C*')
  r = c.exec_params('select $1::bytea, $2::int8', [{value: bytes, format: 1}, {value: [7].pack('q>'), format: 1}], 1)
  equal [r.getvalue(0, 0), r.getvalue(0, 1).unpack1('q>')], [bytes, 7]
end
test('rows_of_256_kB') do
  r = connect.exec_params('select $1::text from generate_series(1, 40)', [LARGE])
  equal [r.ntuples, r.getvalue(39, 0) == LARGE], [40, true]
end
test('prepared_statements') do
  c = connect
  100.times do |n|
    c.prepare("p#{n}", "select $1::int + #{n}")
    equal c.exec_prepared("p#{n}", [1]).getvalue(0, 0), (n + 1).to_s
  end
  equal c.describe_prepared('p1').nparams, 1
  c.exec('deallocate all')
  equal state { c.exec_prepared('p1', [1]) }, '26000'
end
test('begin_and_commit_kept_prepared_with_a_ticket_each') do
  c = connect
  {b: 'begin', c: 'commit'}.each { |name, sql| c.prepare(name.to_s, sql) }
  c.exec('reset fence.ticket')
  3.times do
    c.exec_prepared('b')
    c.exec("set local fence.ticket = '#{Holder.ticket}'")
    write(c)
    c.exec_prepared('c')
    equal state { write(c) }, 'LG002'
  end
end
test('pipeline_mode') do
  c = connect
  c.enter_pipeline_mode
  c.send_query_params('select 1', [])
  c.send_query_params('select 1/0', [])
  c.send_query_params('select 2', [])
  c.pipeline_sync
  c.send_query_params('select 3', [])
  c.pipeline_sync
  seen = []
  while seen.count(PG::PGRES_PIPELINE_SYNC) < 2
    r = c.sync_get_result or next
    seen << r.result_status
  end
  equal seen, [PG::PGRES_TUPLES_OK, PG::PGRES_FATAL_ERROR, PG::PGRES_PIPELINE_ABORTED, PG::PGRES_PIPELINE_SYNC, PG::PGRES_TUPLES_OK, PG::PGRES_PIPELINE_SYNC]
  c.sync_get_result
  c.exit_pipeline_mode
end
test('pipeline_with_a_ticket') do
  c = connect('')
  c.enter_pipeline_mode
  ['begin', "set local fence.ticket = '#{Holder.ticket}'", "insert into guarded values ('#{RESOURCE}', 5)", 'commit'].each { |sql| c.send_query_params(sql, []) }
  c.pipeline_sync
  states = []
  until states.include?(PG::PGRES_PIPELINE_SYNC)
    r = c.sync_get_result or next
    states << r.result_status
  end
  equal states, [PG::PGRES_COMMAND_OK] * 4 + [PG::PGRES_PIPELINE_SYNC]
end
test('single_row_mode') do
  c = connect
  c.send_query('select generate_series(1, 1000)')
  c.set_single_row_mode
  equal c.get_result.stream_each.sum { |row| row['generate_series'].to_i }, 500500
end
test('cursor') do
  c = connect
  c.transaction do
    c.exec('declare cur scroll cursor with hold for select generate_series(1, 100)')
    equal c.exec('fetch 60 from cur').ntuples, 60
  end
  equal c.exec('fetch all from cur').ntuples, 40
end
test('savepoints') do
  c = connect
  c.transaction do
    c.exec('savepoint a')
    equal state { c.exec('select nothing') }, '42703'
    equal state { c.exec('select 1') }, '25P02'
    c.exec('rollback to a')
    write(c, 2)
  end
end
test('transaction_block_that_raises_rolls_back') do
  c = connect
  begin
    c.transaction do
      write(c, 990)
      raise 'no'
    end
  rescue RuntimeError
    # as it should
  end
  equal one(c, 'select count(*) from guarded where n = 990'), '0'
end
test('isolation_levels') do
  c = connect
  ['serializable', 'repeatable read', 'read committed'].each do |level|
    c.exec("begin isolation level #{level} read only")
    equal one(c, 'show transaction_isolation'), level
    equal state { write(c) }, '25006'
    c.exec('rollback')
  end
end
test('copy_in') do
  c = connect
  r = c.copy_data('copy item from stdin') { 20_000.times { |n| c.put_copy_data("#{1000 + n}\tx\t1\n") } }
  equal r.cmd_tuples, 20_000
end
test('copy_in_with_an_encoder') do
  c = connect
  c.copy_data('copy item from stdin', PG::TextEncoder::CopyRow.new) { c.put_copy_data(['30000', 'x', nil]) }
  equal one(c, 'select count(*) from item where id = 30000'), '1'
end
test('copy_in_bad_data') do
  c = connect
  equal state { c.copy_data('copy item from stdin') { c.put_copy_data("a\tb\n") } }, '22P02'
  equal one(c, 'select 1'), '1'
end
test('copy_in_given_up') do
  c = connect
  begin
    c.copy_data('copy item from stdin') { c.put_copy_data("90000\tx\t1\n"); raise 'source is broken' }
  rescue RuntimeError
    # as it should
  end
  equal one(c, 'select count(*) from item where id = 90000'), '0'
end
test('copy_into_the_guarded_table') do
  c = connect
  equal state { c.copy_data('copy guarded from stdin') { c.put_copy_data("another\t5\n") } }, 'LG002'
  c.copy_data('copy guarded from stdin') { c.put_copy_data("#{RESOURCE}\t5\n") }
end
test('copy_out') do
  c = connect
  n = 0
  c.copy_data('copy (select generate_series(1, 50000)) to stdout') { n += 1 while c.get_copy_data }
  equal n, 50_000
end
test('copy_out_given_up') do
  c = connect
  begin
    c.copy_data('copy (select generate_series(1, 1000000)) to stdout') { c.get_copy_data; raise 'sink is broken' }
  rescue RuntimeError
    # it has read, or cancelled, the rest
  end
  equal one(c, 'select 1'), '1'
end
test('listen_notify') do
  a, b = connect, connect
  a.exec('listen news')
  b.exec("select pg_notify('news', 'payload')")
  got = nil
  a.wait_for_notify(20) { |channel, pid, payload| got = [channel, pid, payload] }
  equal got, ['news', b.backend_pid, 'payload']
end
test('cancel_reaches_its_own_backend_only') do
  a, b = connect, connect
  other = Thread.new { one(b, "select 'not cancelled' from pg_sleep(0.5)") }
  t = sleeping(a) { |conn, sql| state { conn.exec(sql) } }
  a.cancel
  equal [t.value, other.value, one(a, 'select 1')], ['57014', 'not cancelled', '1']
end
test('statement_timeout') do
  c = connect
  c.exec('set statement_timeout = 50')
  equal state { c.exec('select pg_sleep(20)') }, '57014'
end
test('large_object') do
  c = connect
  c.transaction do
    oid = c.lo_creat
    fd = c.lo_open(oid, PG::INV_READ | PG::INV_WRITE)
    c.lo_write(fd, LARGE)
    c.lo_lseek(fd, 0, PG::SEEK_SET)
    equal c.lo_read(fd, LARGE.size) == LARGE, true
    c.lo_close(fd)
    c.lo_unlink(oid)
  end
end
test('large_object_without_a_ticket') do
  c = connect('')
  c.exec('begin')
  begin
    c.lo_creat
  rescue PG::Error => e
    equal e.message.include?('lo_creat failed'), true
  else
    raise 'no error'
  end
  equal [c.transaction_status, c.error_message.include?('LG002')], [PG::PQTRANS_INERROR, true]
end
%w[require verify-ca verify-full].each do |mode|
  test("tls_#{mode}_and_scram") do
    c = connect(user: 'scram', password: 'secret', sslmode: mode, sslrootcert: ENV['ROOTCERT'])
    equal [write(c), c.ssl_in_use?], [1, true]
    fence
    fenced { c.exec('select 1') }
  end
end
test('wrong_password') do
  connect(user: 'scram', password: 'wrong')
rescue PG::ConnectionBad => e
  equal e.message.include?('password authentication failed'), true
else
  raise 'let in'
end
test('several_hosts') do
  %w[any read-write primary prefer-standby].each do |attrs|
    c = connect(host: '127.0.0.1,127.0.0.1', port: "1,#{ENV['PGPORT']}", target_session_attrs: attrs)
    equal write(c), 1
  end
end
test('concurrent_connections') do
  20.times.map { Thread.new { c = PG.connect(options: "-c fence.ticket=#{Holder.ticket}"); 20.times { write(c, 3) }; c.close } }.each(&:join)
end
test('several_statements') do
  c = connect
  equal c.exec('select 1; select 2; select 3').getvalue(0, 0), '3'
  equal state { c.exec("insert into item values (50, 'a', 1); select 1/0") }, '22012'
  equal one(c, 'select count(*) from item where id = 50'), '0'
end
test('notices') do
  c = connect
  seen = []
  c.set_notice_receiver { |r| seen << r.error_field(PG::PG_DIAG_SEVERITY) }
  c.exec("do $$ begin raise notice 'a %', repeat('n', 20000); raise warning 'w'; end $$")
  equal seen, %w[NOTICE WARNING]
end
test('empty_query') { equal connect.exec('').result_status, PG::PGRES_EMPTY_QUERY }
test('two_phase_commit_is_refused') do
  c = connect
  c.exec('begin')
  write(c, 950)
  equal state { c.exec("prepare transaction 'x'") }, 'LG006'
  c.exec('rollback')
end

run_all
