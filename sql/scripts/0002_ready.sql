-- Whether this database may decide at all. Every function asks first; LG007 means that nothing changed.

create function fence.micros(p_time timestamptz) returns bigint
language sql immutable as
$$ select (extract(epoch from p_time) operator(pg_catalog.*) 1000000)::bigint $$;

-- The timeline is read from the name of the file being written: the control file's lags until a checkpoint.
create function fence.here(out system bigint, out timeline bigint, out database oid)
language sql set search_path = pg_catalog, pg_temp as $$
    select c.system_identifier,
           ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint,
           (select d.oid from pg_database d where d.datname = current_database())
    from pg_control_system() c
$$;

create function fence.not_ready(p_detail text, p_hint text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'the store is not ready' using errcode = 'LG007', detail = p_detail, hint = p_hint;
end $$;

-- Raises LG007 unless this server, this session and this database may decide for the cluster. With p_pin a
-- database that is pinned to no cluster yet is pinned to this one, by the caller's transaction.
create function fence.require_ready(p_cluster text, p_pin boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_id   fence.identity;
    v_here record;
begin
    if pg_is_in_recovery() then
        perform fence.not_ready('The server is in recovery.', 'Point the store at the primary.');
    end if;
    -- An older snapshot would hide the bindings of those who came while we waited.
    if current_setting('transaction_isolation') <> 'read committed' then
        perform fence.not_ready(
            format('The side connection is in %s.', upper(current_setting('transaction_isolation'))),
            'Call the functions in READ COMMITTED.');
    end if;
    -- Without pg_read_all_stats other sessions show no start and would be taken for gone.
    if not pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
       or not pg_has_role(current_user, 'pg_signal_backend', 'USAGE') then
        perform fence.not_ready(
            format('The role %I lacks pg_read_all_stats or pg_signal_backend.', current_user),
            'Run `lychgate sql install` again as a superuser.');
    end if;
    select * into v_id from fence.identity;
    select * into v_here from fence.here();
    if v_id.single is null or (v_id.system, v_id.timeline, v_id.database)
            is distinct from (v_here.system, v_here.timeline, v_here.database) then
        perform fence.not_ready(
            'This database is not the one that its floors were kept for: it was restored, copied or promoted.',
            'Make sure that no earlier session writes here, then run `lychgate sql adopt`.');
    end if;
    if v_id.cluster is null and p_pin then
        update fence.identity set cluster = p_cluster where cluster is null;
        select * into v_id from fence.identity;
    end if;
    if v_id.cluster <> p_cluster then
        perform fence.not_ready(
            format('The database is pinned to cluster %s, the claim is of cluster %s.', v_id.cluster, p_cluster),
            'A database belongs to one cluster of coordinators; move it with `lychgate sql adopt`.');
    end if;
end $$;

revoke all on function fence.floor_never_falls(), fence.micros(timestamptz), fence.here(),
    fence.not_ready(text, text), fence.require_ready(text, boolean) from public;
