import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.StringReader;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Arrays;
import org.postgresql.PGConnection;
import org.postgresql.largeobject.LargeObjectManager;

/** What the driver has of its own, and the usual parts of JDBC. */
class Features extends Cases {
    static PGConnection own(Connection c) throws SQLException { return c.unwrap(PGConnection.class); }

    static void cases() {
        copies();
        largeObjects();
        results();
        others();
    }

    static void copies() {
        test("copy_in", () -> {
            var rows = new StringBuilder();
            for (int n = 1000; n < 21000; n++) rows.append(n).append("\tx\t1\n");
            equal(own(open()).getCopyAPI().copyIn("copy item from stdin", new StringReader(rows.toString())), 20000L);
        });
        test("copy_in_bad_data", () -> {
            var c = open();
            code(() -> own(c).getCopyAPI().copyIn("copy item from stdin", new StringReader("a\tb\n".repeat(50000))), "22P02");
            equal(one(c, "select 1"), "1");
        });
        test("copy_in_given_up", () -> {
            var c = open();
            var broken = new InputStream() {
                @Override public int read() throws IOException { throw new IOException("source is broken"); }
            };
            try {
                own(c).getCopyAPI().copyIn("copy item from stdin", broken);
                throw new AssertionError("no error");
            } catch (IOException e) {
                equal(one(c, "select 1"), "1");
            }
        });
        test("copy_in_cancelled", () -> {
            var c = open();
            var copy = own(c).getCopyAPI().copyIn("copy item from stdin");
            var row = "80000\tx\t1\n".getBytes();
            copy.writeToCopy(row, 0, row.length);
            copy.cancelCopy();
            equal(one(c, "select count(*) from item where id = 80000"), "0");
        });
        test("copy_into_the_guarded_table", () -> {
            var c = open();
            equal(own(c).getCopyAPI().copyIn("copy guarded from stdin", new StringReader(resource + "\t5\n")), 1L);
            code(() -> own(c).getCopyAPI().copyIn("copy guarded from stdin", new StringReader("another\t5\n")), "LG002");
        });
        test("copy_without_a_ticket", () -> {
            var c = open("", "assumeMinServerVersion", "12");
            code(() -> own(c).getCopyAPI().copyIn("copy item from stdin", new StringReader("1\tx\t1\n")), "LG002");
        });
        test("copy_out", () -> {
            var out = new ByteArrayOutputStream();
            equal(own(open()).getCopyAPI().copyOut("copy (select * from generate_series(1, 50000)) to stdout", out), 50000L);
            equal(out.toString().lines().count(), 50000L);
        });
        test("copy_out_reader_breaks", () -> {
            var c = open();
            var broken = new OutputStream() {
                @Override public void write(int b) throws IOException { throw new IOException("sink is broken"); }
            };
            try {
                own(c).getCopyAPI().copyOut("copy (select * from generate_series(1, 100000)) to stdout", broken);
                throw new AssertionError("no error");
            } catch (IOException e) {
                equal(e.getMessage(), "sink is broken");
            }
            // It has cancelled the copy without reading its end, and takes that for the next statement's reply: with or
            // without a proxy the connection is of no use any more.
            c.close();
            equal(one(open(), "select 1"), "1");
        });
        test("copy_out_fenced", () -> {
            var c = transaction();
            var copy = own(c).getCopyAPI().copyOut("copy (select generate_series(1, 100000000), repeat('x', 100)) to stdout");
            copy.readFromCopy();
            var fenced = meanwhile(Cases::fence);
            lost(() -> { while (copy.readFromCopy() != null) { } });
            fenced.join();
        });
        test("copy_binary", () -> {
            var c = open();
            var out = new ByteArrayOutputStream();
            own(c).getCopyAPI().copyOut("copy (select 90000::int8, 'x'::text, null::numeric) to stdout binary", out);
            equal(own(c).getCopyAPI().copyIn("copy item from stdin binary", new ByteArrayInputStream(out.toByteArray())), 1L);
        });
    }

    /** They travel as FunctionCall messages. */
    static void largeObjects() {
        test("large_object", () -> {
            var c = transaction();
            var manager = own(c).getLargeObjectAPI();
            long oid = manager.createLO(LargeObjectManager.READWRITE);
            try (var o = manager.open(oid, LargeObjectManager.READWRITE)) {
                o.write(large.getBytes());
                o.seek(0);
                equal(new String(o.read(large.length())).equals(large), true);
                equal(o.size64(), (long) large.length());
                o.truncate(20);
            }
            manager.delete(oid);
            c.commit();
        });
        test("large_object_fenced", () -> {
            var c = transaction();
            var manager = own(c).getLargeObjectAPI();
            long oid = manager.createLO(LargeObjectManager.READWRITE);
            var o = manager.open(oid, LargeObjectManager.WRITE);
            o.write(new byte[1000]);
            fence();
            lost(() -> o.write(new byte[1000]));
            equal(one(open(), "select count(*) from pg_largeobject_metadata where oid = ?", oid), "0");
        });
        test("large_object_without_a_ticket", () -> {
            var c = open("", "assumeMinServerVersion", "12");
            c.setAutoCommit(false);
            code(() -> own(c).getLargeObjectAPI(), "LG002"); // it asks for the functions' numbers
        });
    }

    static void results() {
        test("fetch_size", () -> {
            for (int size : new int[] {1, 7, 1000}) {
                var c = transaction();
                try (var s = c.prepareStatement("select generate_series(1, 1000)")) {
                    s.setFetchSize(size);
                    var rows = s.executeQuery();
                    int sum = 0;
                    while (rows.next()) sum += rows.getInt(1);
                    equal(sum, 500500);
                }
                c.commit();
            }
        });
        test("fetch_size_given_up", () -> {
            var c = transaction("defaultRowFetchSize", "10");
            for (int n = 0; n < 7; n++) {
                equal(one(c, "select generate_series(1, 1000)"), "1");
                equal(one(c, "select 1"), "1");
            }
            c.commit();
        });
        test("adaptive_fetch", () -> {
            var c = transaction("defaultRowFetchSize", "10", "adaptiveFetch", "true", "maxResultBuffer", "2M");
            var rows = c.createStatement().executeQuery("select repeat('x', 1000) from generate_series(1, 5000)");
            int count = 0;
            while (rows.next()) count++;
            equal(count, 5000);
        });
        test("scrollable_and_updatable", () -> {
            var c = open();
            exec(c, "insert into item values (40000, 'a', 1)");
            var s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
            var rows = s.executeQuery("select id, name from item where id = 40000");
            rows.last();
            rows.updateString(2, "b");
            rows.updateRow();
            equal(one(c, "select name from item where id = 40000"), "b");
        });
        test("holdable_cursor", () -> {
            var c = transaction();
            exec(c, "declare held cursor with hold for select generate_series(1, 5)");
            c.commit();
            equal(one(c, "fetch 5 from held"), "1");
        });
        test("ref_cursor", () -> {
            var c = transaction();
            exec(c, "create or replace function pg_temp.refs() returns refcursor language plpgsql as "
                + "$$ declare r refcursor; begin open r for select generate_series(1, 10); return r; end $$");
            try (var call = c.prepareCall("{? = call pg_temp.refs()}")) {
                call.registerOutParameter(1, java.sql.Types.OTHER);
                call.execute();
                var rows = (ResultSet) call.getObject(1);
                int n = 0;
                while (rows.next()) n++;
                equal(n, 10);
            }
        });
        test("types", () -> {
            for (var binary : new String[] {"0", "1", "-1"}) {
                var c = open(holder(), "prepareThreshold", binary);
                equal(one(c, "select ?::int8", Long.MAX_VALUE), String.valueOf(Long.MAX_VALUE));
                equal(one(c, "select ?::text", "ä€😀"), "ä€😀");
                equal(one(c, "select ?::numeric", new java.math.BigDecimal("12345678901234567890.123456789")), "12345678901234567890.123456789");
                equal(one(c, "select ?::text", new Object[] {null}), null);
                try (var s = c.prepareStatement("select ?::bytea, ?::int[], ?::timestamp")) {
                    s.setBytes(1, new byte[] {0, 1, -1});
                    s.setArray(2, c.createArrayOf("int4", new Integer[] {1, null, 3}));
                    s.setObject(3, java.time.LocalDateTime.of(2024, 2, 29, 12, 0));
                    var rows = s.executeQuery();
                    rows.next();
                    equal(Arrays.toString(rows.getBytes(1)), "[0, 1, -1]");
                    equal(Arrays.toString((Object[]) rows.getArray(2).getArray()), "[1, null, 3]");
                    equal(rows.getObject(3, java.time.LocalDateTime.class).toString(), "2024-02-29T12:00");
                }
            }
        });
        test("rows_of_256_kB", () -> {
            var c = open();
            try (var s = c.prepareStatement("select ?::text from generate_series(1, 40)")) {
                s.setString(1, large);
                var rows = s.executeQuery();
                int count = 0;
                for (; rows.next(); count++) equal(rows.getString(1).equals(large), true);
                equal(count, 40);
            }
        });
        test("generated_keys", () -> {
            try (var s = open().prepareStatement("insert into item values (41000, 'a', 1)", new String[] {"id"})) {
                s.executeUpdate();
                var keys = s.getGeneratedKeys();
                keys.next();
                equal(keys.getLong(1), 41000L);
            }
        });
    }

    static void others() {
        test("savepoints", () -> {
            var c = transaction();
            var saved = c.setSavepoint("a");
            code(() -> one(c, "select nothing"), "42703");
            c.rollback(saved);
            equal(write(c, 2), 1);
            c.releaseSavepoint(saved);
            c.commit();
        });
        test("isolation_levels", () -> {
            var c = transaction();
            for (int level : new int[] {Connection.TRANSACTION_SERIALIZABLE, Connection.TRANSACTION_REPEATABLE_READ, Connection.TRANSACTION_READ_COMMITTED}) {
                c.setTransactionIsolation(level);
                equal(c.getTransactionIsolation(), level);
                c.commit();
            }
        });
        test("serialization_failure", () -> {
            Connection a = transaction(), b = transaction();
            for (var c : new Connection[] {a, b}) {
                c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
                one(c, "select count(*) from item");
            }
            exec(a, "insert into item values (42000, 'a', 1)");
            exec(b, "insert into item values (42001, 'a', 1)");
            a.commit();
            code(b::commit, "40001");
        });
        test("listen_notify", () -> {
            Connection a = open(), b = open();
            exec(a, "listen news");
            exec(b, "select pg_notify('news', 'payload')");
            var n = own(a).getNotifications(20000);
            equal(n[0].getName() + n[0].getParameter() + n[0].getPID(), "newspayload" + pid(b));
        });
        test("listener_is_fenced", () -> {
            var c = open();
            exec(c, "listen news");
            fence();
            code(() -> own(c).getNotifications(20000), "LG001");
        });
        test("several_statements", () -> {
            var s = open().createStatement();
            s.execute("select 1; select 2; select 3");
            int results = 1;
            while (s.getMoreResults()) results++;
            equal(results, 3);
            var c = open();
            code(() -> exec(c, "insert into item values (43000, 'a', 1); select 1/0"), "22012");
            equal(one(c, "select count(*) from item where id = 43000"), "0");
        });
        test("warnings", () -> {
            var s = open().createStatement();
            s.execute("do $$ begin raise notice 'a %', repeat('n', 20000); raise warning 'w'; end $$");
            equal(s.getWarnings().getNextWarning().getMessage(), "w");
        });
        test("metadata", () -> {
            var rows = open().getMetaData().getColumns(null, "public", "item", null);
            int columns = 0;
            while (rows.next()) columns++;
            equal(columns, 3);
        });
        test("procedure_that_commits", () -> {
            var c = open(holder(), "escapeSyntaxCallMode", "callIfNoReturn");
            exec(c, "create or replace procedure commits(who text) language plpgsql as "
                + "$$ begin insert into guarded values (who, 7000); commit; insert into guarded values (who, 7001); end $$");
            try (var call = c.prepareCall("{call commits(?)}")) {
                call.setString(1, resource);
                call.execute();
            }
            equal(one(c, "select count(*) from guarded where n in (7000, 7001)"), "2");
        });
        test("distributed_transaction_is_refused", () -> {
            var source = new org.postgresql.xa.PGXADataSource();
            source.setUrl("jdbc:postgresql://" + where + "/" + System.getenv("PGDATABASE"));
            source.setUser(System.getenv("PGUSER"));
            source.setOptions("-c fence.ticket=" + holder());
            var xa = source.getXAConnection();
            var id = new javax.transaction.xa.Xid() {
                @Override public int getFormatId() { return 1; }
                @Override public byte[] getGlobalTransactionId() { return new byte[] {1}; }
                @Override public byte[] getBranchQualifier() { return new byte[] {2}; }
            };
            var r = xa.getXAResource();
            r.start(id, javax.transaction.xa.XAResource.TMNOFLAGS);
            write(xa.getConnection(), 7002);
            r.end(id, javax.transaction.xa.XAResource.TMSUCCESS);
            try {
                r.prepare(id);
                throw new AssertionError("prepared");
            } catch (javax.transaction.xa.XAException e) {
                equal(((SQLException) e.getCause()).getSQLState(), "LG006");
            }
            xa.close();
        });
    }
}
