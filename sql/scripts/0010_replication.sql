-- Sessions of logical replication may be bound. SQL runs in them too, and they belong to a database and are ended like
-- any other. What sends the log of the whole server (physical replication) belongs to no database, and stays out.

create function fence.require_session(p_pid integer, p_started bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (
        select from pg_stat_get_activity(p_pid) a
        where fence.micros(a.backend_start) = p_started and a.backend_type in ('client backend', 'walsender')
          and a.datid = (select d.oid from pg_database d where d.datname = current_database())) then
        raise exception 'not allowed in a fenced session' using errcode = 'LG006',
            detail = format('Process %s is not a client''s session of this database with that start.', p_pid),
            hint = 'Between proxy and server no pooler may stand.';
    end if;
end $$;

revoke all on function fence.require_session(integer, bigint) from public;

-- As before, but for step 5.
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
    if p_pid is not null then
        perform fence.require_session(p_pid, p_started);
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
