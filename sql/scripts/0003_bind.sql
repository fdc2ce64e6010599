-- The decision. The order of the steps is the proof: each line that looks redundant closes a hole that was
-- found on a real server.

create function fence.refuse_stale(p_token bigint, p_floor bigint, p_since timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- COLUMN and DATATYPE carry the floor and its time to the proxy; the text is for people.
    raise exception 'stale token' using errcode = 'LG001',
        detail = format('Token %s is below the floor %s, accepted at %s.', p_token, p_floor, p_since),
        hint = 'The lock was granted to somebody else since. Acquire it again.',
        column = p_floor::text, datatype = fence.micros(p_since)::text;
end $$;

-- The activity list keeps every session that has not finished its last transaction; a start that we may not
-- see (null) counts as alive.
create function fence.alive(p_pid integer, p_started bigint) returns boolean
language sql set search_path = pg_catalog, pg_temp as $$
    select exists (
        select from pg_stat_get_activity(p_pid) a
        where a.backend_start is null or fence.micros(a.backend_start) = p_started)
$$;

-- Ends the lower bindings of the resource together, the caller's own session excepted, and returns how many
-- there were once all are gone. The caller holds the lock of the floor, so nobody is added meanwhile, and has
-- cleared the activity list since it got the lock.
create function fence.end_lower(
    p_cluster text, p_resource text, p_token bigint, p_pid integer, p_started bigint, p_deadline timestamptz
) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_alive  integer[];
    v_ended  integer;
    v_pause  double precision := 0.001;
    v_notice text := current_setting('client_min_messages');
begin
    loop
        select coalesce(array_agg(b.pid), '{}') into v_alive
        from fence.binding b
        join pg_stat_get_activity(null) a
          on a.pid = b.pid and (a.backend_start is null or fence.micros(a.backend_start) = b.started)
        where b.cluster = p_cluster and b.resource = p_resource and b.token < p_token
          and (b.pid, b.started) is distinct from (p_pid, p_started);
        if v_ended is null then
            v_ended := cardinality(v_alive);
            -- Ending one that has just ended by itself warns, and the proxy takes a warning for a doubtful
            -- answer. What cannot be ended (a role made superuser since) is waited for like the others.
            perform set_config('client_min_messages', 'error', true);
            perform pg_terminate_backend(a.pid)
            from pg_stat_get_activity(null) a left join pg_roles r on r.oid = a.usesysid
            where a.pid = any (v_alive) and r.rolsuper is not true;  -- null: the role was dropped since
            perform set_config('client_min_messages', v_notice, true);
        end if;
        exit when v_alive = '{}';
        if clock_timestamp() >= p_deadline then
            raise exception 'takeover timed out' using errcode = 'LG005',
                detail = format('Sessions of an earlier holder are not gone yet: %s. The floor is unchanged.',
                                array_to_string(v_alive, ', ')),
                hint = 'Try again; look at these processes if it stays so.';
        end if;
        perform pg_sleep(v_pause);
        v_pause := least(v_pause * 1.5, 0.02);
        -- Cached for the whole transaction otherwise.
        perform pg_stat_clear_snapshot();
    end loop;
    return v_ended;
end $$;

-- Accepts the claim or raises: LG001 stale, LG005 takeover timed out, LG006 the session can never be bound,
-- LG007 not ready. A null p_pid raises the floor and registers nobody.
create function fence.bind(
    p_cluster text, p_resource text, p_token bigint, p_lease text,
    p_pid integer, p_started bigint, p_timeout_ms integer,
    out takeover boolean, out ended integer
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_deadline timestamptz := clock_timestamp() + p_timeout_ms * interval '1 millisecond';
    v_floor    fence.floor;
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

    -- 2. Cheap for the many stale.
    select * into v_floor from fence.floor f where f.cluster = p_cluster and f.resource = p_resource;
    if v_floor.token > p_token then
        perform fence.refuse_stale(p_token, v_floor.token, v_floor.since);
    end if;

    -- 3. One lock for joins and raises alike: under FOR SHARE joiners starve a raise, and upgrading deadlocks.
    if v_floor.token is null then
        insert into fence.floor values (p_cluster, p_resource, 0, clock_timestamp()) on conflict do nothing;
    end if;
    select * into strict v_floor from fence.floor f
    where f.cluster = p_cluster and f.resource = p_resource for no key update;
    if v_floor.token > p_token then
        perform fence.refuse_stale(p_token, v_floor.token, v_floor.since);
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

revoke all on function fence.refuse_stale(bigint, bigint, timestamptz), fence.alive(integer, bigint),
    fence.end_lower(text, text, bigint, integer, bigint, timestamptz),
    fence.bind(text, text, bigint, text, integer, bigint, integer) from public;
