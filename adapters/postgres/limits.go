package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Limit is what bounds connections.
type Limit string

// The limits, in the order in which a client meets them.
const (
	LimitListener Limit = "listener" // Config.MaxConnections
	LimitTotal    Limit = "total"
	LimitDatabase Limit = "database"
	LimitUser     Limit = "user"
)

// LimitNames are all of them, for metrics.
func LimitNames() []string {
	return []string{string(LimitListener), string(LimitTotal), string(LimitDatabase), string(LimitUser)}
}

// Caps are how many connections there may be at a time. 0: any number.
type Caps struct {
	Total       int
	PerDatabase int
	Databases   map[string]int // in place of PerDatabase; 0 in it: any number
	PerUser     int
	Users       map[string]int // in place of PerUser; 0 in it: any number
}

// Limits counts the connections of the Servers that share it, by listener, by database, by user and in total. Of each number
// half, or one, is for clients that have neither logged in nor shown a valid ticket: they could be anybody, whatever user they
// name. It keeps one counter for each name that is connected now.
type Limits struct {
	mu   sync.Mutex
	caps Caps
	used map[place]use
}

type place struct {
	limit Limit
	name  string
}

type use struct{ all, strangers int }

// NewLimits has no connections yet.
func NewLimits(caps Caps) *Limits { return &Limits{caps: caps, used: map[place]use{}} }

// SetCaps changes the limits. Who is connected stays, and is counted.
func (l *Limits) SetCaps(caps Caps) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.caps = caps
}

// LimitUse is how far one limit is used.
type LimitUse struct {
	Limit     Limit
	Name      string // of the listener, database or user; empty for the total
	Max       int    // 0: any number
	Used      int
	Strangers int // of Used
}

// Uses lists the total, and the users and databases that are connected, at most most of them, those with the most connections
// first in each limit. Listeners know their own: see Use.
func (l *Limits) Uses(most int) []LimitUse {
	l.mu.Lock()
	total := l.used[place{limit: LimitTotal}]
	uses := []LimitUse{{LimitTotal, "", l.caps.Total, total.all, total.strangers}}
	for at, u := range l.used {
		if at.limit == LimitUser || at.limit == LimitDatabase {
			most, _ := l.max(at, 0)
			uses = append(uses, LimitUse{at.limit, at.name, most, u.all, u.strangers})
		}
	}
	l.mu.Unlock()
	order := []Limit{LimitTotal, LimitDatabase, LimitUser}
	slices.SortFunc(uses, func(a, b LimitUse) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Limit), slices.Index(order, b.Limit)), cmp.Compare(b.Used, a.Used), cmp.Compare(a.Name, b.Name))
	})
	return uses[:min(most, len(uses))]
}

// Use is how many connections a listener has.
func (l *Limits) Use(listener string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used[place{LimitListener, listener}].all
}

// seat is what one connection is counted under.
type seat struct {
	listener       string
	max            int    // of the listener
	database, user string // empty: none
	stranger       bool
}

func (s seat) places() []place {
	places := []place{{LimitListener, s.listener}, {LimitTotal, ""}}
	if s.database != "" {
		places = append(places, place{LimitDatabase, s.database})
	}
	return append(places, place{LimitUser, s.user})
}

// max is the number of one place, and the key of the configuration that it has; ofListener is that of a listener.
func (l *Limits) max(at place, ofListener int) (most int, key string) {
	switch at.limit {
	case LimitListener:
		return ofListener, "max_connections of this listener"
	case LimitTotal:
		return l.caps.Total, "limits.connections"
	case LimitDatabase:
		if n, ok := l.caps.Databases[at.name]; ok {
			return n, fmt.Sprintf("limits.databases of %q", at.name)
		}
		return l.caps.PerDatabase, "limits.per_database"
	case LimitUser:
		if n, ok := l.caps.Users[at.name]; ok {
			return n, fmt.Sprintf("limits.users of %q", at.name)
		}
		return l.caps.PerUser, "limits.per_user"
	}
	panic(fmt.Sprintf("postgres: limit %q", at.limit))
}

// take counts a connection everywhere, or nowhere: then it says where there is no room.
func (l *Limits) take(s seat) *fullError {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range s.places() {
		most, key := l.max(at, s.max)
		u := l.used[at]
		switch {
		case most == 0:
		case u.all >= most:
			return &fullError{place: at, max: most, key: key}
		case s.stranger && u.strangers >= max(1, most/2):
			return &fullError{place: at, max: most, key: key, strangers: true}
		}
	}
	l.count(s, 1, strangers(s))
	return nil
}

// introduce makes a stranger one of the others.
func (l *Limits) introduce(s *seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(*s, 0, -strangers(*s))
	s.stranger = false
}

func (l *Limits) leave(s seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(s, -1, -strangers(s))
}

func strangers(s seat) int {
	if s.stranger {
		return 1
	}
	return 0
}

// count wants l.mu held.
func (l *Limits) count(s seat, all, strangers int) {
	for _, at := range s.places() {
		u := l.used[at]
		u.all += all
		u.strangers += strangers
		if u.strangers < 0 || u.all < u.strangers {
			panic(fmt.Sprintf("postgres: %d connections under %s, %d of them strangers", u.all, at.limit, u.strangers))
		}
		if u.all == 0 {
			delete(l.used, at)
			continue
		}
		l.used[at] = u
	}
}

// fullError is why there is no room.
type fullError struct {
	place
	max       int
	key       string // of the configuration
	strangers bool   // there is, for those who have logged in or shown a ticket
}

func (e *fullError) Error() string { return e.failure().Error() }

// failure is what the client is told.
func (e *fullError) failure() *failure {
	f := fail(codeTooManyConnections, "%s", e.message())
	f.notice.Detail = fmt.Sprintf("%s is %d.", e.key, e.max)
	f.notice.Hint = "Close connections that are not needed, or connect through a pool, and retry."
	if e.strangers {
		f.notice.Detail += fmt.Sprintf(" Of these, %d are for clients that have not logged in yet and show no ticket.", max(1, e.max/2))
		f.notice.Hint = "Retry, or show a ticket when you connect."
	}
	return f
}

func (e *fullError) message() string {
	switch e.limit {
	case LimitDatabase:
		return fmt.Sprintf("too many connections for database %q", e.name)
	case LimitUser:
		return fmt.Sprintf("too many connections for role %q", e.name)
	case LimitListener, LimitTotal:
	}
	return "sorry, too many clients already"
}
