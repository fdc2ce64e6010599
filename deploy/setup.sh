#!/usr/bin/env bash
# Makes sure that this machine has PostgreSQL 14 or newer, PgBouncer, which the proxy is measured beside, a C compiler for the
# race detector, and curl and openssl, which the tour uses. Installs nothing when all are found; otherwise, as root on Debian, installs the distribution's packages, and as another user prints the
# one command that does.
set -euo pipefail

lib=${POSTGRESQL_LIB:-/usr/lib/postgresql} # where Debian keeps each release's programs

pgbouncer=${PGBOUNCER:-/usr/sbin/pgbouncer}        # where Debian puts it, which is not on everybody's PATH

# Prints the folder of the newest server programs that will do. The rule is that of sql/pgserver.Binaries.
found() {
	local dir major
	for dir in $(ls -d "$lib"/*/bin 2>/dev/null | sort -rV) "$(dirname "$(readlink -f "$(command -v initdb || echo /nowhere/initdb)")")"; do
		[ -x "$dir/postgres" ] && [ -x "$dir/initdb" ] || continue
		major=$("$dir/postgres" --version | sed -nE 's/^postgres \(PostgreSQL\) ([0-9]+).*/\1/p')
		[ "${major:-0}" -ge 14 ] && echo "$dir" && return
	done
	return 1
}

client() { command -v psql >/dev/null && { command -v pgbench >/dev/null || ls "$lib"/*/bin/pgbench >/dev/null 2>&1; }; }

missing=()
{ found >/dev/null && client; } || missing+=(postgresql)
command -v pgbouncer >/dev/null || [ -x "$pgbouncer" ] || missing+=(pgbouncer)
command -v gcc >/dev/null || command -v clang >/dev/null || missing+=(gcc libc6-dev)
command -v curl >/dev/null || missing+=(curl)
command -v openssl >/dev/null || missing+=(openssl)
if [ "${1:-}" = drivers ]; then # those of other languages, which `make test-drivers` runs
	for package in libpostgresql-jdbc-java ruby-pg php-cli php-pgsql odbc-postgresql python3-pyodbc python3-psycopg2 python3-psycopg python3-psycopg-pool python3-asyncpg python3-pg8000 python3-sqlalchemy python3-greenlet; do
		dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
	done
	command -v javac >/dev/null || missing+=(default-jdk-headless)
	command -v node >/dev/null || missing+=(nodejs)
	command -v npm >/dev/null || missing+=(npm)
fi
if [ ${#missing[@]} = 0 ]; then
	echo "setup: PostgreSQL in $(found)"
	exit 0
fi
install="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
	echo "setup: PostgreSQL 14 or newer (with psql and pgbench), PgBouncer, gcc, curl and openssl are needed; install them with this system's packages" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "setup: missing are ${missing[*]}; install with:  sudo $install" >&2
	exit 1
fi
echo "setup: installing ${missing[*]} from the distribution's packages"
export DEBIAN_FRONTEND=noninteractive
# The demo and the tests start servers of their own: during this install, the packages make no default cluster and start no
# service. What says so already stays as it is.
said=()
trap 'rm -f "${said[@]}"' EXIT
say() { # FILE TEXT
	[ -e "$1" ] && return
	mkdir -p "$(dirname "$1")"
	said+=("$1")
	echo "$2" >"$1"
	chmod 755 "$1"
}
say /etc/postgresql-common/createcluster.conf 'create_main_cluster = false'
say /usr/sbin/policy-rc.d $'#!/bin/sh\nexit 101'
apt-get update -qq
$install
found >/dev/null || { echo "setup: installed, but no PostgreSQL 14 or newer was found" >&2; exit 1; }
echo "setup: PostgreSQL in $(found)"
