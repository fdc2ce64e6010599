package proxybench

import "time"

// size is how much and how long each phase measures.
type size struct {
	rounds int
	time   time.Duration // of each run of pgbench
	less   bool          // the database itself is measured with one client only

	workloads []string
	protocols []string
	clients   []int
	checking  []int // clients that write what one of them alone may write

	binds     int           // connections that are timed one by one
	idle      int           // connections whose memory is told
	rest      time.Duration // before memory is looked at
	step      time.Duration // between two looks at it
	calm      int           // looks without change after which it has settled
	takeovers int
}

var fullSize = size{
	rounds: 3, time: 5 * time.Second, workloads: Workloads(), protocols: Protocols(), clients: []int{1, 8, 64}, checking: []int{1, 8},
	binds: 300, idle: 1000, rest: 125 * time.Second, step: 500 * time.Millisecond, calm: 6, takeovers: 200,
}

var quickSize = size{
	rounds: 1, time: time.Second, less: true, workloads: Workloads(), protocols: Protocols(), clients: []int{1, 8, 64}, checking: []int{1, 8},
	binds: 50, idle: 200, step: 250 * time.Millisecond, calm: 2, takeovers: 30,
}

// Workloads are those of pgbench itself, by our names.
func Workloads() []string { return []string{"select", "update"} }

// builtin are their names with pgbench.
var builtin = map[string]string{"select": "select-only", "update": "simple-update"}

// Protocols are those by which a client may hand a statement over, as pgbench calls them.
func Protocols() []string { return []string{"simple", "extended", "prepared"} }

func sizeOf(c Config) size {
	s := fullSize
	if c.Quick {
		s = quickSize
	}
	if len(c.Workloads) > 0 {
		s.workloads = c.Workloads
	}
	if len(c.Protocols) > 0 {
		s.protocols = c.Protocols
	}
	if len(c.Clients) > 0 {
		s.clients, s.checking = c.Clients, c.Clients
	}
	if c.Rounds > 0 {
		s.rounds = c.Rounds
	}
	if c.Time > 0 {
		s.time = c.Time
	}
	return s
}
