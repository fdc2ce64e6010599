-- The mode of a binding: a shared lease is for reading, so the guard lets only exclusive ones write.

-- Whoever has written to a guarded table holds a lock of fence.binding until its transaction ends, and binds queue up
-- behind what waits for that: rather not installed now than everybody held up.
set local lock_timeout = '3s';
alter table fence.binding add column shared boolean not null default false;
set local lock_timeout to default;

-- The older function stays for proxies that have not been upgraded yet: they do not know modes and bind exclusive, as
-- they always have.
create function fence.bind(
    p_cluster text, p_resource text, p_token bigint, p_lease text,
    p_pid integer, p_started bigint, p_timeout_ms integer, p_shared boolean,
    out takeover boolean, out ended integer
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    select b.takeover, b.ended into strict takeover, ended
    from fence.bind(p_cluster, p_resource, p_token, p_lease, p_pid, p_started, p_timeout_ms) b;
    -- Nobody has seen the row without its mode: it is one transaction.
    update fence.binding b set shared = p_shared
    where b.cluster = p_cluster and b.resource = p_resource and b.pid = p_pid and b.started = p_started
      and b.shared is distinct from p_shared;
end $$;

drop function fence.bindings(text, integer);
create function fence.bindings(
    p_cluster text, p_limit integer,
    out resource text, out token bigint, out lease text, out pid integer, out started bigint, out since bigint, out shared boolean
) returns setof record
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform fence.require_ready(p_cluster, false);
    perform pg_stat_clear_snapshot();
    return query select b.resource, b.token, b.lease, b.pid, b.started, fence.micros(b.since), b.shared
        from fence.binding b
        join pg_stat_get_activity(null) a
          on a.pid = b.pid and (a.backend_start is null or fence.micros(a.backend_start) = b.started)
        where b.cluster = p_cluster
        order by b.resource, b.pid limit p_limit;
end $$;

revoke all on function fence.bind(text, text, bigint, text, integer, bigint, integer, boolean), fence.bindings(text, integer) from public;

-- Every role that may bind may do it with a mode.
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
        execute pg_catalog.format('grant execute on function fence.bindings(text, integer), '
            'fence.bind(text, text, bigint, text, integer, bigint, integer, boolean) to %I', v_role);
    end loop;
end $$;

-- Whether this very session is bound to the resource under its current floor, in the mode.
create function fence.bound(p_resource text, p_shared boolean) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select exists (
        select from fence.binding b
        join fence.identity i on i.cluster = b.cluster
        join fence.floor f on f.cluster = b.cluster and f.resource = b.resource and f.token = b.token
        join pg_stat_get_activity(pg_backend_pid()) a
          on a.pid = b.pid and fence.micros(a.backend_start) = b.started
        where b.resource = p_resource and b.pid = pg_backend_pid() and b.shared = p_shared)
$$;
revoke all on function fence.bound(text, boolean) from public;

-- Both say nothing about other sessions, so everybody may ask. Who holds may write.
create or replace function fence.holds(p_resource text) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$ select fence.bound(p_resource, false) $$;

create function fence.holds_shared(p_resource text) returns boolean
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$ select fence.bound(p_resource, true) $$;

-- The resources that this very session is bound to, for its own error message.
create or replace function fence.held() returns text[]
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(b.resource || case when b.shared then ' (shared)' else '' end order by b.resource), '{}')
    from fence.binding b
    join fence.identity i on i.cluster = b.cluster
    join fence.floor f on f.cluster = b.cluster and f.resource = b.resource and f.token = b.token
    join pg_stat_get_activity(pg_backend_pid()) a
      on a.pid = b.pid and fence.micros(a.backend_start) = b.started
    where b.pid = pg_backend_pid()
$$;

create or replace function fence.require_held(p_resource text, p_table text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if p_resource is null then
        raise exception 'a row of % belongs to no resource (LG002)', p_table using errcode = 'LG002',
            detail = 'The resource expression of its guard is null for a row that was written.',
            hint = 'Every row of a protected table needs a resource.';
    end if;
    if fence.holds(p_resource) then
        return;
    end if;
    if fence.holds_shared(p_resource) then
        raise exception 'resource % is held shared by this session (LG006)', p_resource using errcode = 'LG006',
            detail = format('The table %s is protected: its rows change only in sessions that hold their resource exclusive.', p_table),
            hint = 'A shared lock is for reading; take it exclusive to write.';
    end if;
    raise exception 'resource % is not held by this session (LG002)', p_resource using errcode = 'LG002',
        detail = format('The table %s is protected: its rows change only in sessions that hold their resource. %s',
                        p_table, fence.held_sentence(fence.held())),
        hint = 'Connect through the proxy with a ticket for the resource.';
end $$;

grant execute on function fence.holds_shared(text) to public;
