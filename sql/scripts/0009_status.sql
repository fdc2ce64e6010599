-- What goes on, for people and their monitoring. Readable by pg_monitor, whose members see other sessions' activity. No
-- secrets: no lease, no statement. Refusals leave nothing here, since they roll back: the proxies count them.

create view fence.floors as
    select f.cluster, f.resource, f.token, f.since from fence.floor f
    union all select d.cluster, null, d.token, d.since from fence.folded d;  -- of every resource that has no larger one

-- state: gone when the session has ended and only its row is left.
create view fence.sessions as
    select b.cluster, b.resource, b.token, b.shared, b.since, b.pid,
           case when a.pid is null then 'gone' else coalesce(a.state, 'unknown') end as state,
           a.state_change as state_since, a.xact_start as transaction_since,
           a.wait_event_type, a.wait_event, a.usename as role, a.application_name, a.client_addr
    from fence.binding b
    left join pg_catalog.pg_stat_activity a
      on a.pid = b.pid and (a.backend_start is null
                            or (extract(epoch from a.backend_start) operator(pg_catalog.*) 1000000)::bigint = b.started);

create view fence.status as
    select (select pg_catalog.max(v.number) from fence.version v) as version, i.cluster, i.since,
           (select pg_catalog.count(*) from fence.floor f where f.cluster = i.cluster) as floors,
           (select d.token from fence.folded d where d.cluster = i.cluster) as folded,
           (select pg_catalog.count(*) from fence.binding b where b.cluster = i.cluster) as bindings
    from fence.identity i;

revoke all on fence.floors, fence.sessions, fence.status from public;
grant select on fence.floors, fence.sessions, fence.status to pg_monitor;
