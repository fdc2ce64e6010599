import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;

/** Tickets, fences and connections; other files have the rest. */
class OnJdbc extends Cases {
    public static void main(String[] args) {
        tickets();
        fences();
        connections();
        Modes.cases();
        Features.cases();
        runAll();
    }

    static void tickets() {
        test("ticket_by_options", () -> equal(write(open(), 1), 1));
        test("other_options_beside_the_ticket", () -> {
            var c = open("", "options", "-c work_mem=5MB -c fence.ticket=" + holder() + " -c statement_timeout=9s", "ApplicationName", "cases");
            equal(one(c, "show work_mem") + one(c, "show statement_timeout") + one(c, "show application_name"), "5MB9scases");
        });
        // Without a ticket it cannot use SET while it connects, which it does for servers it takes to be old.
        test("no_ticket", () -> {
            var c = open("", "assumeMinServerVersion", "12");
            code(() -> exec(c, "select 1"), "LG002");
            code(() -> one(c, "select ?::int", 1), "LG002");
            equal(c.isClosed(), false);
        });
        test("no_ticket_with_the_defaults", () -> code(() -> exec(open(""), "select 1"), "LG002"));
        test("malformed_ticket", () -> code(() -> open("nonsense"), "LG003"));
        test("set_ticket", () -> {
            var c = open("", "assumeMinServerVersion", "12");
            exec(c, ticketBySet(holder()));
            equal(write(c, 1), 1);
            equal(one(c, "show fence.ticket").contains(holder()), false);
            exec(c, "reset fence.ticket");
            code(() -> write(c, 1), "LG002");
        });
        test("set_local_ticket", () -> {
            var c = open("", "assumeMinServerVersion", "12");
            c.setAutoCommit(false);
            for (int n = 0; n < 10; n++) { // past the number from which on it prepares
                exec(c, ticketBySetLocal(holder()));
                equal(write(c, 1), 1);
                c.commit();
                code(() -> write(c, 1), "LG002");
                c.rollback();
            }
        });
        test("set_ticket_as_a_prepared_statement", () -> {
            var c = open("", "assumeMinServerVersion", "12", "prepareThreshold", "1");
            for (int n = 0; n < 3; n++) {
                try (var s = c.prepareStatement(ticketBySet(holder()))) {
                    s.execute();
                }
                equal(write(c, 1), 1);
            }
        });
        test("ticket_late_in_a_transaction", () -> {
            var c = transaction();
            one(c, "select 1");
            code(() -> exec(c, ticketBySetLocal(holder())), "LG006");
            c.rollback();
            equal(write(c, 1), 1);
        });
        test("ticket_by_set_config", () -> code(() -> one(open(), "select set_config('fence.ticket', '" + holder() + "', false)"), "LG006"));
        test("reset_of_a_pool_keeps_the_fence", () -> {
            var c = open();
            exec(c, "reset all");
            exec(c, "discard all");
            equal(write(c, 1), 1);
        });
        test("another_resource_is_refused", () -> code(() -> exec(open(), "insert into guarded values ('another', 1)"), "LG002"));
        test("two_phase_commit_is_refused", () -> {
            var c = transaction();
            write(c, 950);
            code(() -> exec(c, "prepare transaction 'x'"), "LG006");
            c.rollback();
        });
        test("stale_at_connect", () -> {
            var stale = holder();
            fence();
            var m = ((PSQLException) code(() -> open(stale), "LG001")).getServerErrorMessage();
            equal(m.getSeverity(), "FATAL");
            equal(m.getDetail().contains("floor") && m.getHint() != null, true);
        });
    }

    static void fences() {
        test("fenced_while_idle", () -> {
            var c = open();
            fence();
            code(() -> exec(c, "select 1"), "LG001");
            equal(c.isClosed(), true);
        });
        test("fenced_while_idle_and_asked_whether_it_is_valid", () -> {
            var c = open();
            fence();
            equal(c.isValid(5), false); // what pools ask
        });
        test("fenced_in_a_transaction", () -> {
            var c = transaction();
            write(c, 777);
            fence();
            code(c::commit, "LG001");
            equal(one(open(), "select count(*) from guarded where n = 777"), "0");
        });
        test("fenced_while_a_statement_runs", () -> {
            var c = transaction();
            write(c, 778);
            var runs = meanwhile(() -> exec(c, "select pg_sleep(20)"));
            sleeps(open(), c);
            fence();
            code(runs::join, "LG001");
        });
        test("fenced_in_the_first_statement_of_a_transaction", () -> {
            var c = transaction();
            var runs = meanwhile(() -> exec(c, "select pg_sleep(20)")); // it is sent together with BEGIN, whose reply is held back
            sleeps(open(), c);
            fence();
            code(runs::join, "LG008");
        });
        test("fenced_while_a_statement_of_its_own_runs", () -> {
            var c = open();
            var runs = meanwhile(() -> exec(c, "select pg_sleep(20)"));
            sleeps(open(), c);
            fence();
            code(runs::join, "LG008");
        });
        test("fenced_while_rows_stream", () -> {
            var c = transaction();
            var s = c.createStatement();
            s.setFetchSize(1000);
            var rows = s.executeQuery("select generate_series(1, 100000000), repeat('x', 100)");
            rows.next();
            fence();
            code(() -> { while (rows.next()) { } }, "LG001");
        });
        test("fenced_while_all_rows_come", () -> {
            var c = transaction();
            write(c, 779);
            var runs = meanwhile(() -> one(c, "select n, pg_sleep(0.001) from generate_series(1, 100000) n"));
            fence();
            code(runs::join, "LG001");
        });
        test("fenced_in_copy", () -> {
            var c = open();
            var copy = c.unwrap(PGConnection.class).getCopyAPI().copyIn("copy item from stdin");
            var row = "800000\tx\t1\n".getBytes();
            copy.writeToCopy(row, 0, row.length);
            copy.flushCopy();
            fence();
            lost(() -> copy.endCopy());
            equal(one(open(), "select count(*) from item where id = 800000"), "0");
        });
        test("fenced_in_a_batch", () -> {
            var c = open();
            var s = c.createStatement();
            s.addBatch("insert into item values (850000, 'x', 1)");
            s.addBatch("select pg_sleep(20)");
            var runs = meanwhile(s::executeBatch);
            sleeps(open(), c);
            fence();
            try {
                runs.join();
                throw new AssertionError("no error");
            } catch (SQLException e) {
                state(e, "LG008");
            }
            equal(one(open(), "select count(*) from item where id = 850000"), "0");
        });
        test("pool_is_fenced", () -> {
            var pool = new org.postgresql.ds.PGConnectionPoolDataSource();
            pool.setUrl("jdbc:postgresql://" + where + "/" + System.getenv("PGDATABASE"));
            pool.setUser(System.getenv("PGUSER"));
            pool.setOptions("-c fence.ticket=" + holder());
            var pooled = pool.getPooledConnection();
            try (var c = pooled.getConnection()) {
                write(c, 1);
            }
            fence();
            code(() -> { try (var c = pooled.getConnection()) { write(c, 1); } }, "LG001", "08003");
            code(() -> pool.getPooledConnection(), "LG001");
        });
    }

    static void connections() {
        test("cancel_reaches_its_own_backend_only", () -> {
            Connection a = open(), b = open(), watch = open();
            var other = meanwhile(() -> exec(b, "select pg_sleep(0.5)"));
            var s = a.createStatement();
            var runs = meanwhile(() -> s.execute("select pg_sleep(20)"));
            sleeps(watch, a);
            s.cancel();
            code(runs::join, "57014");
            other.join();
            equal(one(a, "select 1"), "1");
        });
        test("query_timeout", () -> {
            var c = open();
            var s = c.createStatement();
            s.setQueryTimeout(1);
            code(() -> s.execute("select pg_sleep(20)"), "57014");
            equal(one(c, "select 1"), "1");
        });
        for (var mode : new String[] {"require", "verify-ca", "verify-full"}) {
            test("tls_" + mode + "_and_scram", () -> {
                var c = open(holder(), "user", "scram", "password", "secret", "sslmode", mode, "sslrootcert", System.getenv("ROOTCERT"));
                equal(write(c, 1), 1);
                fence();
                code(() -> exec(c, "select 1"), "LG001");
            });
        }
        test("cancel_over_tls", () -> {
            var c = open(holder(), "sslmode", "verify-full", "sslrootcert", System.getenv("ROOTCERT"));
            var s = c.createStatement();
            var runs = meanwhile(() -> s.execute("select pg_sleep(20)"));
            sleeps(open(), c);
            s.cancel();
            code(runs::join, "57014");
        });
        test("wrong_password", () -> code(() -> open(holder(), "user", "scram", "password", "wrong"), "28P01"));
        test("several_hosts", () -> {
            for (var type : new String[] {"any", "primary", "preferPrimary", "preferSecondary"}) {
                var c = openAt("127.0.0.1:1," + where, holder(), "targetServerType", type, "hostRecheckSeconds", "0");
                equal(write(c, 1), 1);
            }
            code(() -> openAt("127.0.0.1:1," + where, holder(), "targetServerType", "secondary"), "08001");
        });
        test("several_hosts_and_a_stale_ticket", () -> {
            var stale = holder();
            fence();
            code(() -> openAt(where + "," + where.replace("127.0.0.1", "localhost"), stale), "LG001");
        });
        test("concurrent_connections", () -> {
            var running = new ArrayList<Running>();
            for (int i = 0; i < 20; i++) running.add(meanwhile(() -> {
                try (var c = open()) {
                    for (int n = 0; n < 20; n++) write(c, 3);
                }
            }));
            for (var r : running) r.join();
        });
        test("backend_pid", () -> {
            var c = open();
            equal(one(c, "select pg_backend_pid()"), String.valueOf(pid(c)));
        });
        test("read_only_modes", () -> {
            for (var mode : new String[] {"ignore", "transaction", "always"}) {
                var c = transaction("readOnlyMode", mode);
                c.setReadOnly(true);
                if (!mode.equals("ignore")) code(() -> write(c, 1), "25006");
                c.rollback();
                c.setReadOnly(false);
                equal(write(c, 1), 1);
                c.commit();
            }
        });
        test("network_timeout_and_abort", () -> {
            var c = open();
            c.setNetworkTimeout(Runnable::run, 200);
            code(() -> exec(c, "select pg_sleep(20)"), "08006");
            equal(c.isClosed(), true);
            open().abort(Runnable::run);
        });
    }
}
