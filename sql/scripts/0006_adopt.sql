-- Pins the database to what it is now and to the cluster (null: to the next one that comes), after a
-- restore, a promotion, or a move to another cluster. Ends every bound session first. Floors stay: they are
-- kept by cluster, and never go down. Returns how many sessions were ended.
create function fence.adopt(p_cluster text, p_timeout_ms integer) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_deadline timestamptz := clock_timestamp() + p_timeout_ms * interval '1 millisecond';
    v_bound    record;
    v_ended    integer := 0;
begin
    -- Nobody is let in meanwhile.
    lock table fence.floor in exclusive mode;
    for v_bound in select distinct b.cluster, b.resource from fence.binding b loop
        perform pg_stat_clear_snapshot();
        v_ended := v_ended + fence.end_lower(v_bound.cluster, v_bound.resource, 9007199254740992, null, null, v_deadline);
    end loop;
    delete from fence.binding;
    delete from fence.identity;
    insert into fence.identity (cluster, system, timeline, database)
    select p_cluster, h.system, h.timeline, h.database from fence.here() h;
    return v_ended;
end $$;

revoke all on function fence.adopt(text, integer) from public;
