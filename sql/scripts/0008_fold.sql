-- Floors of resources that are not used any more are folded into one floor of the cluster, so that they do not grow for
-- ever. The floor of a resource is the larger of its record and the folded floor.

-- No token below it is of a live lease, in any group of coordinators, nor will be issued again.
create table fence.folded (
    cluster text        primary key collate "C",
    token   bigint      not null check (token between 1 and 9007199254740991),
    since   timestamptz not null
);
revoke all on fence.folded from public;

create function fence.folded_never_falls() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'UPDATE' and new.cluster = old.cluster and new.token >= old.token then
        return new;
    end if;
    raise exception 'the folded floor never goes down and is never removed'
        using errcode = 'check_violation', detail = pg_catalog.format('%s on fence.folded', tg_op);
end $$;

create trigger folded_never_falls before update or delete on fence.folded
    for each row execute function fence.folded_never_falls();
create trigger folded_is_never_emptied before truncate on fence.folded
    for each statement execute function fence.folded_never_falls();
alter table fence.folded enable always trigger folded_never_falls;
alter table fence.folded enable always trigger folded_is_never_emptied;

-- A record goes only where the folded floor refuses all that it refused.
create or replace function fence.floor_never_falls() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'UPDATE' and new.cluster = old.cluster and new.resource = old.resource and new.token >= old.token then
        return new;
    end if;
    if tg_op = 'DELETE' and exists (
        select from fence.folded d where d.cluster = old.cluster and d.token > old.token) then
        return old;
    end if;
    raise exception 'the floor of a resource never goes down and is never removed'
        using errcode = 'check_violation', detail = pg_catalog.format('%s on fence.floor', tg_op);
end $$;

create function fence.refuse_below(p_token bigint, p_floor fence.floor, p_folded fence.folded) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if coalesce(p_floor.token >= p_folded.token, p_folded.token is null) then
        perform fence.refuse_stale(p_token, p_floor.token, p_floor.since);
    else
        perform fence.refuse_stale(p_token, p_folded.token, p_folded.since);
    end if;
end $$;

-- Accepts the claim or raises: LG001 stale, LG005 takeover timed out, LG006 the session can never be bound,
-- LG007 not ready. A null p_pid raises the floor and registers nobody.
create or replace function fence.bind(
    p_cluster text, p_resource text, p_token bigint, p_lease text,
    p_pid integer, p_started bigint, p_timeout_ms integer,
    out takeover boolean, out ended integer
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_deadline timestamptz := clock_timestamp() + p_timeout_ms * interval '1 millisecond';
    v_floor    fence.floor;
    v_folded   fence.folded;
    v_pending  text;
begin
    -- 1. Whether anything can be decided here; and a superuser's session cannot be ended by us.
    perform fence.require_ready(p_cluster, true);
    if p_token not between 1 and 9007199254740991 then
        raise exception 'token out of range' using errcode = 'numeric_value_out_of_range';
    end if;
    if exists (select from pg_stat_get_activity(p_pid) a join pg_roles r on r.oid = a.usesysid
               where p_pid is not null and r.rolsuper) then
        raise exception 'not allowed in a fenced session' using errcode = 'LG006',
            detail = 'The session of a superuser cannot be fenced: nobody else could end it.',
            hint = 'Log in as a role without SUPERUSER.';
    end if;

    -- 2. Cheap for the many stale. The record is read before the folded floor: who misses a record that was folded finds
    -- the floor that it was folded into.
    select * into v_floor from fence.floor f where f.cluster = p_cluster and f.resource = p_resource;
    select * into v_folded from fence.folded d where d.cluster = p_cluster;
    if greatest(v_floor.token, v_folded.token) > p_token then
        perform fence.refuse_below(p_token, v_floor, v_folded);
    end if;

    -- 3. One lock for joins and raises alike: under FOR SHARE joiners starve a raise, and upgrading deadlocks. The record
    -- that we wait for may be folded meanwhile; then it is made anew, and the folded floor decides.
    loop
        if v_floor.token is null then
            insert into fence.floor values (p_cluster, p_resource, 0, clock_timestamp()) on conflict do nothing;
        end if;
        select * into v_floor from fence.floor f
        where f.cluster = p_cluster and f.resource = p_resource for no key update;
        exit when found;
    end loop;
    select * into v_folded from fence.folded d where d.cluster = p_cluster;
    if greatest(v_floor.token, v_folded.token) > p_token then
        perform fence.refuse_below(p_token, v_floor, v_folded);
    end if;
    -- The database may have moved to another cluster while we waited, whose holders do not end our sessions.
    if (select i.cluster from fence.identity i) is distinct from p_cluster then
        perform fence.require_ready(p_cluster, true);
    end if;

    -- 4. After the lock: who connected while we waited is missing from the list that step 1 has cached.
    perform pg_stat_clear_snapshot();

    -- 5. The session must be what it is said to be.
    if p_pid is not null and not exists (
        select from pg_stat_get_activity(p_pid) a
        where fence.micros(a.backend_start) = p_started and a.backend_type = 'client backend'
          and a.datid = (select d.oid from pg_database d where d.datname = current_database())) then
        raise exception 'not allowed in a fenced session' using errcode = 'LG006',
            detail = format('Process %s is not a client''s session of this database with that start.', p_pid),
            hint = 'Between proxy and server no pooler may stand.';
    end if;
    takeover := v_floor.token < p_token;
    ended := 0;

    if takeover then
        -- 6. Durable before it is answered, whatever the database's default; a SET clause of the function
        -- would be undone before COMMIT.
        if current_setting('synchronous_commit') not in ('on', 'remote_apply') then
            perform set_config('synchronous_commit', 'on', true);
        end if;
        ended := fence.end_lower(p_cluster, p_resource, p_token, p_pid, p_started, v_deadline);

        -- 7. A prepared transaction outlives its session and does not say whose it was.
        select string_agg(quote_literal(x.gid), ', ') into v_pending
        from pg_prepared_xacts x where x.database = current_database();
        if v_pending is not null then
            raise exception 'takeover timed out' using errcode = 'LG005',
                detail = format('Prepared transactions of this database are pending: %s. The floor is unchanged.', v_pending),
                hint = 'COMMIT PREPARED or ROLLBACK PREPARED them; max_prepared_transactions = 0 is advised.';
        end if;
        delete from fence.binding b
        where b.cluster = p_cluster and b.resource = p_resource and b.token < p_token;
        update fence.floor f set token = p_token, since = clock_timestamp()
        where f.cluster = p_cluster and f.resource = p_resource;
    elsif current_setting('synchronous_standby_names') = '' then
        -- The floor that we saw is on disk, and bindings need not be. With synchronous standbys it may be
        -- that only we have it yet (a cancelled wait), so there a join waits for them too.
        perform set_config('synchronous_commit', 'off', true);
    elsif current_setting('synchronous_commit') not in ('on', 'remote_apply') then
        perform set_config('synchronous_commit', 'on', true);
    end if;

    if p_pid is not null then
        insert into fence.binding (cluster, resource, pid, started, token, lease, since)
        values (p_cluster, p_resource, p_pid, p_started, p_token, p_lease, clock_timestamp())
        on conflict (cluster, resource, pid, started)
            do update set token = excluded.token, lease = excluded.lease, since = excluded.since;
    end if;
end $$;

-- Raises the folded floor to p_below, and folds at most p_limit records below it. p_below is what the coordinators have
-- committed: the smallest token of a live lease, else the next token, the smallest over all groups. What a session is bound
-- to keeps its record, for the guard. Returns how many records went; null: somebody else is folding.
create function fence.fold(p_cluster text, p_below bigint, p_limit integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_resources text[];
    v_count     integer;
begin
    perform fence.require_ready(p_cluster, false);
    if p_below not between 1 and 9007199254740991 then
        raise exception 'token out of range' using errcode = 'numeric_value_out_of_range';
    end if;
    if not pg_try_advisory_xact_lock(hashtext('fence.fold')) then
        return null;
    end if;
    insert into fence.folded as d values (p_cluster, p_below, clock_timestamp())
    on conflict (cluster) do update set token = excluded.token, since = excluded.since where d.token < excluded.token;
    -- The lock that a bind takes, before its bindings are looked at; who is binding now is left for the next time.
    select coalesce(array_agg(l.resource), '{}') into v_resources from (
        select f.resource from fence.floor f
        where f.cluster = p_cluster and f.token < p_below
          and not exists (select from fence.binding b where b.cluster = f.cluster and b.resource = f.resource)
        limit p_limit for update skip locked) l;
    -- Moved to another cluster while we waited: then these floors are nobody's to fold.
    perform fence.require_ready(p_cluster, false);
    delete from fence.floor f
    where f.cluster = p_cluster and f.resource = any (v_resources)
      and not exists (select from fence.binding b where b.cluster = f.cluster and b.resource = f.resource);
    get diagnostics v_count = row_count;
    return v_count;
end $$;

create or replace function fence.floor_of(p_cluster text, p_resource text, out token bigint, out since bigint)
returns setof record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform fence.require_ready(p_cluster, false);
    return query select x.token, fence.micros(x.since) from (
        select f.token, f.since from fence.floor f where f.cluster = p_cluster and f.resource = p_resource and f.token > 0
        union all select d.token, d.since from fence.folded d where d.cluster = p_cluster) x
        order by x.token desc limit 1;
end $$;

revoke all on function fence.folded_never_falls(), fence.refuse_below(bigint, fence.floor, fence.folded),
    fence.fold(text, bigint, integer) from public;

-- Every role that may bind may fold.
do $$
declare
    v_role name;
begin
    for v_role in
        select r.rolname from pg_catalog.pg_proc p
        cross join lateral pg_catalog.aclexplode(p.proacl) a join pg_catalog.pg_roles r on r.oid = a.grantee
        where p.oid = 'fence.bind(text, text, bigint, text, integer, bigint, integer)'::pg_catalog.regprocedure
          and a.privilege_type = 'EXECUTE'
    loop
        execute pg_catalog.format('grant execute on function fence.fold(text, bigint, integer) to %I', v_role);
    end loop;
end $$;
