-- Forgetting and looking. Rows are read before the activity list, so a session that is missing from the list
-- had a row because it lived once: it is gone.

-- Removes the binding when its session is gone, or when the caller vouches that nothing of it is in flight
-- (p_idle): a killed client's statement may still be running. Reports whether the binding is gone.
create function fence.unbind(p_cluster text, p_resource text, p_pid integer, p_started bigint, p_idle boolean)
returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform fence.require_ready(p_cluster, false);
    perform pg_stat_clear_snapshot();
    perform set_config('synchronous_commit', 'off', true);
    delete from fence.binding b
    where b.cluster = p_cluster and b.resource = p_resource and b.pid = p_pid and b.started = p_started
      and (p_idle or not fence.alive(b.pid, b.started));
    return not exists (
        select from fence.binding b
        where b.cluster = p_cluster and b.resource = p_resource and b.pid = p_pid and b.started = p_started);
end $$;

-- Removes rows whose sessions are gone, left by proxies that died; returns how many.
create function fence.sweep() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    v_swept bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        perform fence.not_ready('The side connection is not in READ COMMITTED.', null);
    end if;
    perform pg_stat_clear_snapshot();
    perform set_config('synchronous_commit', 'off', true);
    delete from fence.binding b
    where not exists (
        select from pg_stat_get_activity(null) a
        where a.pid = b.pid and (a.backend_start is null or fence.micros(a.backend_start) = b.started));
    get diagnostics v_swept = row_count;
    return v_swept;
end $$;

-- No row: no token was ever accepted.
create function fence.floor_of(p_cluster text, p_resource text, out token bigint, out since bigint)
returns setof record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform fence.require_ready(p_cluster, false);
    return query select f.token, fence.micros(f.since) from fence.floor f
        where f.cluster = p_cluster and f.resource = p_resource and f.token > 0;
end $$;

create function fence.bindings(
    p_cluster text, p_limit integer,
    out resource text, out token bigint, out lease text, out pid integer, out started bigint, out since bigint
) returns setof record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform fence.require_ready(p_cluster, false);
    perform pg_stat_clear_snapshot();
    return query select b.resource, b.token, b.lease, b.pid, b.started, fence.micros(b.since)
        from fence.binding b
        join pg_stat_get_activity(null) a
          on a.pid = b.pid and (a.backend_start is null or fence.micros(a.backend_start) = b.started)
        where b.cluster = p_cluster
        order by b.resource, b.pid limit p_limit;
end $$;

-- Raises LG007 when the store is not ready for the cluster; else the version of the schema.
create function fence.check_ready(p_cluster text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform fence.require_ready(p_cluster, false);
    return (select max(v.number) from fence.version v);
end $$;

revoke all on function fence.unbind(text, text, integer, bigint, boolean), fence.sweep(),
    fence.floor_of(text, text), fence.bindings(text, integer), fence.check_ready(text) from public;
