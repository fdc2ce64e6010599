package proxybench

import (
	"net"
	"strconv"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// target is something that clients connect to as if it were the database.
type target struct {
	name    string
	address string       // host:port
	options string       // of the connection, as PGOPTIONS has them
	process *stage.Child // whose processor time counts; nil: the database itself
}

// The kinds of targets, and the order in which figures are told.
const (
	ours = iota
	pgBouncer
	direct
	targetCount
)

// role and database are whom all clients log in as, and where.
const (
	role     = "app"
	database = "app"
)

func (t target) hostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(t.address) // it was made of both
	return host, port
}

// dsn is a connection string for one session. A ticket that is not empty goes along.
func (t target) dsn(ticket string) string {
	host, port := t.hostPort()
	dsn := "host=" + host + " port=" + port + " user=" + role + " dbname=" + database + " sslmode=disable"
	if ticket != "" {
		dsn += " fence.ticket=" + ticket
	}
	return dsn
}

// address is host:port.
func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
