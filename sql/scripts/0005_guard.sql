-- The guard of a table, against what no proxy sees: direct logins, foreign servers, background jobs, and a
-- holder of one resource that writes the rows of another.
--
-- Not covered: the owner of the table and superusers (they can drop the guard), large objects, sequences,
-- and the apply worker of a logical subscription, which fires no statement triggers.

-- Whether this very session is bound to the resource under its current floor. It says nothing about other
-- sessions, so everybody may ask.
create function fence.holds(p_resource text) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select exists (
        select from fence.binding b
        join fence.identity i on i.cluster = b.cluster
        join fence.floor f on f.cluster = b.cluster and f.resource = b.resource and f.token = b.token
        join pg_stat_get_activity(pg_backend_pid()) a
          on a.pid = b.pid and fence.micros(a.backend_start) = b.started
        where b.resource = p_resource and b.pid = pg_backend_pid())
$$;

-- The resources that this very session is bound to, for its own error message.
create function fence.held() returns text[]
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(b.resource order by b.resource), '{}')
    from fence.binding b
    join fence.identity i on i.cluster = b.cluster
    join fence.floor f on f.cluster = b.cluster and f.resource = b.resource and f.token = b.token
    join pg_stat_get_activity(pg_backend_pid()) a
      on a.pid = b.pid and fence.micros(a.backend_start) = b.started
    where b.pid = pg_backend_pid()
$$;

-- As a sentence, of bounded length.
create function fence.held_sentence(p_held text[]) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case cardinality(p_held) when 0 then 'This session holds none.'
        else format('This session holds %s%s.', array_to_string(p_held[1:10], ', '),
                    case when cardinality(p_held) > 10 then format(' and %s more', cardinality(p_held) - 10) else '' end) end
$$;

create function fence.require_held(p_resource text, p_table text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_resource is null then
        raise exception 'a row of % belongs to no resource (LG002)', p_table using errcode = 'LG002',
            detail = 'The resource expression of its guard is null for a row that was written.',
            hint = 'Every row of a protected table needs a resource.';
    end if;
    if not fence.holds(p_resource) then
        raise exception 'resource % is not held by this session (LG002)', p_resource using errcode = 'LG002',
            detail = format('The table %s is protected: its rows change only in sessions that hold their resource. %s',
                            p_table, fence.held_sentence(fence.held())),
            hint = 'Connect through the proxy with a ticket for the resource.';
    end if;
end $$;

-- The query that names the resources of a set of rows. LATERAL refuses aggregates, the inner SELECT makes
-- a set that is empty a null, so that no expression can lose a row, and the collation that no name answers for another.
create function fence.resources_query(p_rows text, p_alias text, p_resource text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('select distinct fence_e.fence_r collate "C" from (%s) as %I, lateral (select (select (%s)::text)) as fence_e(fence_r)',
                  p_rows, p_alias, p_resource)
$$;

-- Arguments of the trigger: the resource expression, and the name by which it may call the table.
-- The expression runs as whoever writes: as the fence's owner, a cast of the table's owner could forge a
-- binding. The search path is pinned: otherwise the writer chooses what `||` means.
create function fence.guard() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_rows     text;
    v_resource text;
begin
    v_rows := case tg_op
        when 'INSERT' then 'select * from fence_new'
        when 'DELETE' then 'select * from fence_old'
        else 'select * from fence_old union all select * from fence_new' end;
    for v_resource in execute fence.resources_query(v_rows, tg_argv[1], tg_argv[0]) loop
        perform fence.require_held(v_resource, format('%I.%I', tg_table_schema, tg_table_name));
    end loop;
    return null;
end $$;

-- TRUNCATE shows no rows, so they are looked at before. It has locked the table, but removes also what an
-- older snapshot or a row security policy hides.
create function fence.guard_truncate() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    v_table    text := format('%I.%I', tg_table_schema, tg_table_name);
    v_resource text;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'TRUNCATE of % is not allowed here', v_table using errcode = 'LG006',
            detail = 'The table is protected, and this transaction cannot see all the rows that would be removed.',
            hint = 'Use DELETE, or TRUNCATE in READ COMMITTED.';
    end if;
    for v_resource in execute fence.resources_query('select * from ' || v_table, tg_argv[1], tg_argv[0]) loop
        perform fence.require_held(v_resource, v_table);
    end loop;
    return null;
end $$;

create function fence.tables_of(p_table regclass) returns setof regclass
language sql stable set search_path = pg_catalog, pg_temp as $$
    select p_table union select t.relid from pg_partition_tree(p_table) t
$$;

-- Why the table cannot be guarded; null when it can. Statement triggers fire for the table that a statement
-- names, so a row must not be reachable under another table's name.
create function fence.unguardable(p_table regclass) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case
        when c.relispartition then 'it is a partition; protect the partitioned table that it belongs to'
        when exists (select from fence.tables_of(p_table) t join pg_class k on k.oid = t
                     where k.relkind not in ('r', 'p') or k.relpersistence = 't')
            then 'it is, or has as a partition, something else than a permanent table'
        when exists (select from fence.tables_of(p_table) t
                     join pg_inherits i on t in (i.inhparent, i.inhrelid)
                     join pg_class k on k.oid = i.inhrelid where not k.relispartition)
            then 'it takes part in inheritance' end
    from pg_class c where c.oid = p_table
$$;

-- A row that MERGE moves to another partition is in neither transition table, so nothing would check it. The rule does
-- nothing, but PostgreSQL refuses MERGE for a table that has one.
--
-- Guards the table and each of its partitions; again after partitions were added. Runs with the caller's
-- rights, who must own the table. Returns how many tables are guarded.
create function fence.protect(p_table regclass, p_resource text) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_table  regclass;
    v_name   name := (select c.relname from pg_class c where c.oid = p_table);
    v_reason text;
    v_count  integer := 0;
    v_call   text;
begin
    execute format('lock table %s in access exclusive mode', p_table);
    v_reason := fence.unguardable(p_table);
    if v_reason is not null then
        raise exception '% cannot be protected', p_table
            using errcode = 'feature_not_supported', detail = format('Because %s.', v_reason);
    end if;
    execute fence.resources_query('select * from ' || p_table, v_name, p_resource) || ' limit 0';
    for v_table in select fence.tables_of(p_table) loop
        perform fence.drop_guard(v_table);
        v_call := format('for each statement execute function fence.guard(%L, %L)', p_resource, v_name);
        execute format('create trigger fence_insert after insert on %s referencing new table as fence_new %s', v_table, v_call);
        execute format('create trigger fence_update after update on %s referencing old table as fence_old new table as fence_new %s', v_table, v_call);
        execute format('create trigger fence_delete after delete on %s referencing old table as fence_old %s', v_table, v_call);
        execute format('create trigger fence_truncate before truncate on %s for each statement execute function fence.guard_truncate(%L, %L)',
                       v_table, p_resource, v_name);
        execute format('alter table only %s enable always trigger fence_insert, enable always trigger fence_update, '
                       'enable always trigger fence_delete, enable always trigger fence_truncate', v_table);
        if (select c.relkind = 'p' from pg_class c where c.oid = v_table) then
            execute format('create rule fence_no_merge as on delete to %s where false do also nothing', v_table);
            execute format('alter table only %s enable always rule fence_no_merge', v_table);
        end if;
        v_count := v_count + 1;
    end loop;
    return v_count;
end $$;

create function fence.drop_guard(p_table regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_name name;
begin
    for v_name in
        select t.tgname from pg_trigger t
        where t.tgrelid = p_table and t.tgfoid in ('fence.guard'::regproc, 'fence.guard_truncate'::regproc)
    loop
        execute format('drop trigger %I on %s', v_name, p_table);
    end loop;
    if exists (select from pg_rewrite w where w.ev_class = p_table and w.rulename = 'fence_no_merge') then
        execute format('drop rule fence_no_merge on %s', p_table);
    end if;
end $$;

-- Takes the guard off; returns from how many tables.
create function fence.unprotect(p_table regclass) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_count integer;
begin
    execute format('lock table %s in access exclusive mode', p_table);
    select count(distinct t.tgrelid) into v_count from pg_trigger t
    where t.tgrelid in (select fence.tables_of(p_table))
      and t.tgfoid in ('fence.guard'::regproc, 'fence.guard_truncate'::regproc);
    perform fence.drop_guard(t) from fence.tables_of(p_table) t;
    return v_count;
end $$;

-- The protected tables, partitions under the table they belong to. Not complete: a trigger or the rule is missing or
-- switched off somewhere, a partition was added, or a row can be reached under another name.
create function fence.protected(out name text, out resource text, out complete boolean) returns setof record
language sql stable set search_path = pg_catalog, pg_temp as $$
    select r.root::text,
           min(convert_from(substring(t.tgargs from 1 for position('\x00'::bytea in t.tgargs) - 1), getdatabaseencoding())),
           (select count(*) = 4 * (select count(*) from fence.tables_of(r.root))
            from pg_trigger g join fence.tables_of(r.root) p on p = g.tgrelid
            where g.tgfoid in ('fence.guard'::regproc, 'fence.guard_truncate'::regproc) and g.tgenabled = 'A')
           and not exists (select from fence.tables_of(r.root) p join pg_class k on k.oid = p
                           where k.relkind = 'p' and not exists (
                               select from pg_rewrite w
                               where w.ev_class = p and w.rulename = 'fence_no_merge' and w.ev_enabled = 'A'))
           and fence.unguardable(r.root) is null
    from pg_trigger t
    cross join lateral (select coalesce(pg_partition_root(t.tgrelid), t.tgrelid) as root) r
    where t.tgfoid in ('fence.guard'::regproc, 'fence.guard_truncate'::regproc)
    group by r.root order by 1
$$;

-- What runs with the caller's own rights may be called by everybody.
grant execute on function fence.holds(text), fence.held(), fence.held_sentence(text[]), fence.require_held(text, text), fence.guard(), fence.guard_truncate(),
    fence.resources_query(text, text, text), fence.tables_of(regclass), fence.unguardable(regclass),
    fence.protect(regclass, text), fence.drop_guard(regclass), fence.unprotect(regclass), fence.protected() to public;
