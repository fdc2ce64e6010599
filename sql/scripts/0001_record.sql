-- What is kept. Everything here belongs to the owner role; nobody else reads or writes it but by the functions.

-- Which database of which server at which point of its history the floors were kept for, and for which
-- cluster of coordinators. A copy or a restored backup differs in at least one of them.
create table fence.identity (
    single   boolean     primary key default true check (single),
    cluster  text        collate "C",  -- null until the first claim is accepted
    system   bigint      not null,     -- of the server: made by initdb, kept by copies
    timeline bigint      not null,     -- changes by promotion and by recovery to a point in time
    database oid         not null,
    since    timestamptz not null default pg_catalog.clock_timestamp()
);

-- The highest token accepted. Collation C: an upgrade of the system's collations must not lose a floor in
-- an index whose order has changed.
create table fence.floor (
    cluster  text        not null collate "C",
    resource text        not null collate "C" check (pg_catalog.octet_length(resource) between 1 and 256),
    token    bigint      not null check (token between 0 and 9007199254740991),
    since    timestamptz not null,
    primary key (cluster, resource)
);

-- The sessions let in. Unlogged on purpose: after a crash the rows are gone, and so are the sessions.
-- A row may outlive its session, never the reverse.
create unlogged table fence.binding (
    cluster  text        not null collate "C",
    resource text        not null collate "C",
    pid      integer     not null,
    started  bigint      not null,     -- microseconds since 1970
    token    bigint      not null,
    lease    text        not null,     -- hash of the lease id
    since    timestamptz not null,
    primary key (cluster, resource, pid, started)
);

create function fence.floor_never_falls() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'UPDATE' and new.cluster = old.cluster and new.resource = old.resource and new.token >= old.token then
        return new;
    end if;
    raise exception 'the floor of a resource never goes down and is never removed'
        using errcode = 'check_violation', detail = pg_catalog.format('%s on fence.floor', tg_op);
end $$;

create trigger floor_never_falls before update or delete on fence.floor
    for each row execute function fence.floor_never_falls();
create trigger floor_is_never_emptied before truncate on fence.floor
    for each statement execute function fence.floor_never_falls();
-- ALWAYS: also under session_replication_role = replica.
alter table fence.floor enable always trigger floor_never_falls;
alter table fence.floor enable always trigger floor_is_never_emptied;

revoke all on fence.identity, fence.floor, fence.binding from public;
