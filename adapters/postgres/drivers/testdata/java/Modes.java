import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.SQLException;

/** The ways in which the driver can be told to talk: each makes other messages of the same calls. */
class Modes extends Cases {
    static final String[][] modes = {
        {"simple", "preferQueryMode", "simple"},
        {"extended", "preferQueryMode", "extended"},
        {"extended_for_prepared", "preferQueryMode", "extendedForPrepared"},
        {"extended_cache_everything", "preferQueryMode", "extendedCacheEverything"},
        {"prepared_at_once", "prepareThreshold", "1"},
        {"binary", "prepareThreshold", "-1"},
        {"never_prepared", "prepareThreshold", "0"},
        {"rewritten_batches", "reWriteBatchedInserts", "true"},
        {"autosave_never", "autosave", "never"},
        {"autosave_always", "autosave", "always"},
        {"autosave_conservative", "autosave", "conservative"},
        {"cleaned_savepoints", "autosave", "always", "cleanupSavepoints", "true"},
    };

    static void cases() {
        for (var m : modes) {
            var name = m[0];
            var properties = java.util.Arrays.copyOfRange(m, 1, m.length);
            test(name + "_queries", () -> {
                var c = open(holder(), properties);
                for (int n = 0; n < 12; n++) { // past the number from which on it prepares
                    equal(one(c, "select ?::int + 1", n), String.valueOf(n + 1));
                    equal(write(c, 4), 1);
                    code(() -> one(c, "select 1/?::int", 0), "22012");
                }
            });
            test(name + "_transactions", () -> transactions(transaction(properties), name.contains("always") || name.contains("cleaned")));
            test(name + "_batches", () -> batches(open(holder(), properties)));
            test(name + "_fenced", () -> {
                var c = transaction(properties);
                write(c, 5000);
                var runs = meanwhile(() -> one(c, "select pg_sleep(?)", 20));
                sleeps(open(), c);
                fence();
                code(runs::join, "LG001");
                equal(one(open(), "select count(*) from guarded where n = 5000"), "0");
            });
            test(name + "_ticket_by_set_local", () -> ticketBySetLocal(properties));
            test(name + "_changed_result_type", () -> changed(transaction(properties), name));
        }
    }

    /** After an error the transaction is over, unless the driver has a savepoint before each statement. */
    static void transactions(Connection c, boolean saved) throws SQLException {
        for (int n = 0; n < 7; n++) {
            write(c, 6000);
            code(() -> one(c, "select 1/?::int", 0), "22012");
            if (saved) {
                equal(one(c, "select 1"), "1");
            } else {
                code(() -> one(c, "select 1"), "25P02");
            }
            c.rollback();
            equal(one(c, "select count(*) from guarded where n = 6000"), "0");
            c.commit();
        }
    }

    static void batches(Connection c) throws SQLException {
        for (int round = 0; round < 3; round++) {
            int first = 100000 + round * 1000;
            try (var s = c.prepareStatement("insert into item values (?, ?, ?)")) {
                for (int n = 0; n < 300; n++) {
                    s.setLong(1, first + n);
                    s.setString(2, "b");
                    s.setInt(3, n);
                    s.addBatch();
                }
                s.executeBatch();
            }
            equal(one(c, "select count(*) from item where id between ? and ?", first, first + 999), "300");
        }
        exec(c, "delete from item where id >= 100000 and id < 110000");
        c.setAutoCommit(false);
        try (var s = c.prepareStatement("insert into guarded values (?, ?)")) {
            for (var who : new String[] {resource, "another", resource}) {
                s.setString(1, who);
                s.setInt(2, 6001);
                s.addBatch();
            }
            try {
                s.executeBatch();
                throw new AssertionError("no error");
            } catch (BatchUpdateException e) {
                state(e, "LG002");
            }
        }
        c.rollback();
        equal(one(c, "select count(*) from guarded where n = 6001"), "0");
        c.commit();
    }

    static void ticketBySetLocal(String... properties) throws SQLException {
        var more = java.util.Arrays.copyOf(properties, properties.length + 2);
        more[properties.length] = "assumeMinServerVersion";
        more[properties.length + 1] = "12";
        var c = open("", more);
        c.setAutoCommit(false);
        for (int n = 0; n < 7; n++) {
            exec(c, ticketBySetLocal(holder()));
            equal(write(c, 1), 1);
            c.commit();
            code(() -> write(c, 1), "LG002");
            c.rollback();
        }
    }

    /** A plan that is out of date: autosave makes it again, without it the transaction fails once. */
    static void changed(Connection c, String name) throws SQLException {
        var other = open();
        exec(other, "create table changing (a int)");
        try {
            for (int n = 0; n < 7; n++) one(c, "select count(*) from (select * from changing) x");
            c.commit();
            exec(other, "alter table changing add b int");
            try {
                exec(c, "select * from changing");
            } catch (SQLException e) {
                state(e, "0A000");
            }
            c.rollback();
        } finally {
            exec(other, "drop table changing");
        }
    }
}
