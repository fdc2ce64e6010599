"""psql, pgbench and pg_dump with pg_restore."""
import os
import subprocess
import tempfile

from cases import case, equal, holder, host, main, port, resource, tickets

dir = tempfile.mkdtemp(dir=os.getcwd())


def path(name, text=None, mode=0o600):
    name = os.path.join(dir, name)
    if text is not None:
        with open(name, "w") as f:
            f.write(text)
        os.chmod(name, mode)
    return name


def run(*command, ticket=None, text="", **env):
    """The exit code, the output and the errors of a program that has the ticket in PGOPTIONS."""
    ticket = holder.ticket if ticket is None else ticket
    options = {"PGOPTIONS": f"-c fence.ticket={ticket}"} if ticket else {}
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=os.environ | options | env, timeout=60)
    return done.returncode, done.stdout, done.stderr


def psql(text, *args, **more):
    return run("psql", "-XAtq", *args, text=text, **more)


def out(text, *args, **more):
    code, got, errors = psql(text, "-v", "ON_ERROR_STOP=1", *args, **more)
    equal((code, errors), (0, ""))
    return got.strip()


def refused(lg, done, code=2):
    equal(done[0], code)
    equal(done[2].count(lg), 1)


def write(n):
    return f"insert into guarded values ('{resource}', {n});\n"


def count(n):
    return int(out(f"select count(*) from guarded where n = {n}"))


def fence(ticket):
    """A line of psql's that has a successor come while the session is open."""
    return f"\\! PGOPTIONS='-c fence.ticket={ticket}' psql -XAtqc 'select 1' > /dev/null\n"


@case
def ticket_by_pgoptions():
    out(write(1))
    equal(count(1), 1)


@case
def ticket_by_conninfo():
    out(write(2), f"options='-c fence.ticket={holder.ticket}'", ticket="")
    out(write(2), f"postgresql://?options=-c%20fence.ticket%3D{holder.ticket}", ticket="")
    equal(count(2), 2)


@case
def ticket_by_a_service_file():
    name = path("service", f"[fenced]\nhost={host}\nport={port}\noptions=-c fence.ticket={holder.ticket}\n")
    equal(out("select 3", "service=fenced", ticket="", PGSERVICEFILE=name), "3")


@case
def ticket_by_connect():
    equal(out(f"\\connect \"options='-c fence.ticket={holder.ticket}'\"\nselect 4", ticket=""), "4")


@case
def ticket_by_set():
    out(f"set fence.ticket = '{holder.ticket}';\n" + write(5), ticket="")
    equal(count(5), 1)


@case
def ticket_in_a_variable():
    out("set fence.ticket = :'t';\n" + write(6), "-v", f"t={holder.ticket}", ticket="")
    equal(count(6), 1)


@case
def set_local_in_one_transaction():
    code, got, errors = psql(f"begin;\nset local fence.ticket = '{holder.ticket}';\n{write(7)}commit;\n{write(7)}", ticket="")
    equal((code, errors.count("LG002")), (0, 1))
    equal(count(7), 1)


@case
def no_ticket():
    refused("LG002", psql("select 1", "-v", "ON_ERROR_STOP=1", ticket=""), 3)
    refused("LG002", run("psql", "-Xc", "select 1", ticket=""), 1)


@case
def malformed_ticket():
    refused("LG003", psql("select 1", ticket="nonsense"))


@case
def stale_ticket():
    out("select 1", ticket=holder.next())
    refused("LG001", psql("select 1", ticket=tickets[holder.at - 1]))


@case
def fenced_between_statements():
    done = psql(write(8) + fence(holder.next()) + write(9) + write(9), ticket=tickets[holder.at - 1])
    refused("LG001", done)
    equal((count(8), count(9)), (1, 0))


@case
def fenced_in_a_transaction():
    stale = holder.ticket
    done = psql("begin;\n" + write(10) + fence(holder.next()) + "commit;\n", ticket=stale)
    assert done[0] == 2 and ("LG001" in done[2] or "LG008" in done[2]), done
    equal(count(10), 0)


@case
def fenced_with_one_transaction_for_all():
    stale = holder.ticket
    done = psql(write(11) + fence(holder.next()) + write(11), "-1", ticket=stale)
    refused("LG001", done)
    equal(count(11), 0)


@case
def one_transaction_fails_as_a_whole():
    equal(psql(write(12) + "select 1/0;\n", "-1", "-v", "ON_ERROR_STOP=1")[0], 3)
    equal(count(12), 0)
    out(write(12) * 3, "-1")
    equal(count(12), 3)


@case
def error_and_on():
    code, got, errors = psql("select 1/0;\nselect 5;\n")
    equal((code, got.strip()), (0, "5"))


@case
def error_rolls_back_to_a_savepoint():
    out("\\set ON_ERROR_ROLLBACK on\nbegin;\n" + write(13) + "commit;\n")
    psql("begin;\n" + write(13) + "select 1/0;\n" + write(13) + "commit;\n", "-v", "ON_ERROR_ROLLBACK=on")
    equal(count(13), 3)


@case
def ticket_with_savepoints_of_psql():
    out(f"begin;\nset local fence.ticket = '{holder.ticket}';\n" + write(14) + "commit;\n", "-v", "ON_ERROR_ROLLBACK=on", ticket="")
    equal(count(14), 1)


@case
def without_autocommit():
    out(write(15), "-v", "AUTOCOMMIT=off")
    equal(count(15), 0)


@case
def gexec():
    out(f"select format('insert into guarded values (%L, 16)', '{resource}') from generate_series(1, 20) \\gexec\n")
    equal(count(16), 20)


@case
def gset_bind_and_gdesc():
    equal(out("select 17 as n \\gset\nselect :n, :'n';\nselect 1 as a \\gdesc\n"), "17|17\na|integer")


@case
def rows_in_portions():
    equal(out("\\set FETCH_COUNT 100\nselect generate_series(1, 1000);\n").count("\n"), 999)


@case
def watch_that_is_fenced():
    refused("LG001", psql("begin;\n" + fence(holder.next()) + "select 1 \\watch 0.1\n", ticket=tickets[holder.at - 1]))


@case
def copy_in_and_out():
    name = path("rows", "".join(f"{n}\tx\t1\n" for n in range(1000, 6000)))
    out(f"\\copy item from '{name}'\n\\copy item to '{name}.out'\n\\copy item to '{name}.bin' (format binary)\n")
    equal(open(name + ".out").read(), open(name).read())
    out(f"delete from item;\n\\copy item from '{name}.bin' (format binary)\n")
    equal(out("select count(*) from item"), "5000")


@case
def copy_from_the_script():
    equal(out("copy item from stdin;\n1\ta\t1\n2\tb\t2\n\\.\nselect count(*) from item where id < 10;\n"), "2")


@case
def copy_of_bad_data():
    name = path("bad", "a\tb\n" * 5000)
    code, got, errors = psql(f"\\copy item from '{name}'\nselect 5;\n")
    equal((got.strip(), errors.count("ERROR")), ("5", 1))


@case
def large_objects():
    name = path("large", "x" * 300000)
    out(f"begin;\n\\lo_import '{name}'\n\\lo_export :LASTOID '{name}.out'\n\\lo_unlink :LASTOID\ncommit;\n")
    equal(os.path.getsize(name + ".out"), 300000)


@case
def listen_and_notify():
    assert 'Asynchronous notification "news" with payload "p"' in out("listen news;\nnotify news, 'p';\nselect 1;\n")


@case
def describe():
    assert "id|bigint" in out("\\d item\n")
    assert "guarded" in out("\\dt\n")


@case
def scram_with_a_password_file_and_tls():
    name = path("pass", f"{host}:{port}:*:scram:secret\n")
    for mode in ("require", "verify-full"):
        equal(out("select current_user", "-U", "scram", PGPASSFILE=name, PGSSLMODE=mode, PGSSLROOTCERT=os.environ["ROOTCERT"]), "scram")


@case
def wrong_password():
    code, _, errors = psql("select 1", "-U", "scram", "-w", PGPASSWORD="wrong")
    assert code == 2 and "password authentication failed" in errors, errors


script = path("script", "\\set n random(1, 1000)\n" + write(30))


def bench(*args, **more):
    return run("pgbench", "-n", "-f", script, "-t", "10", *args, **more)


def modes(mode):
    @case
    def pgbench():
        equal(bench("-M", mode, "-c", "4")[0], 0)

    pgbench.__name__ = f"pgbench_{mode}"

    @case
    def pgbench_with_a_ticket_each():
        text = f"begin;\nset local fence.ticket = '{holder.ticket}';\n{write(31)}commit;\n"
        before = count(31)
        equal(run("pgbench", "-n", "-M", mode, "-f", path("each", text), "-t", "5", "-c", "3", ticket="")[0], 0)
        equal(count(31) - before, 15)

    pgbench_with_a_ticket_each.__name__ = f"pgbench_{mode}_with_a_ticket_for_each_transaction"


for mode in ("simple", "extended", "prepared"):
    modes(mode)


@case
def pgbench_connects_for_each_transaction():
    equal(bench("-C", "-c", "3")[0], 0)


@case
def pgbench_at_a_rate():
    equal(bench("--rate", "200", "-c", "2")[0], 0)


@case
def pgbench_pipelines():
    text = "\\startpipeline\nbegin;\n" + write(32) * 5 + "commit;\n\\endpipeline\n"
    equal(run("pgbench", "-n", "-M", "extended", "-f", path("pipeline", text), "-t", "5")[0], 0)
    equal(count(32), 25)


@case
def pgbench_is_refused():
    out("select 1", ticket=holder.next())
    done = bench("-c", "2", ticket=tickets[holder.at - 1])
    assert done[0] != 0 and "LG001" in done[2], done


@case
def dump_and_restore():
    for form, more in (("c", ()), ("d", ("-j", "2")), ("t", ())):
        name = path("dump_" + form)
        done = run("pg_dump", "-F", form, "-f", name, "-t", "item", *more)
        equal((done[0], done[2]), (0, ""))
        before = out("select count(*) from item")
        out("delete from item")
        done = run("pg_restore", "-a", "-t", "item", "-d", os.environ["PGDATABASE"], *(more or ("-1",)), name)
        equal((done[0], done[2]), (0, ""))
        equal(out("select count(*) from item"), before)


@case
def plain_dump():
    done = run("pg_dump", "-a", "-t", "item")
    equal(done[0], 0)
    out("delete from item")
    equal(psql(done[1], "-v", "ON_ERROR_STOP=1")[0], 0)
    assert int(out("select count(*) from item"))


@case
def dump_without_a_ticket():
    done = run("pg_dump", "-t", "item", ticket="")
    assert done[0] == 1 and "LG002" in done[2], done


main()
