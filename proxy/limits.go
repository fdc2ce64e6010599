package proxy

import (
	"fmt"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/proxy/admin"
)

// Limits are how many connections there may be over all listeners, beside the max_connections of each. 0: any number.
type Limits struct {
	Connections int          `koanf:"connections"` // in total
	PerDatabase int          `koanf:"per_database"`
	PerUser     int          `koanf:"per_user"`
	Databases   []NamedLimit `koanf:"databases"` // in place of per_database
	Users       []NamedLimit `koanf:"users"`     // in place of per_user
}

// NamedLimit is that of one database or user.
type NamedLimit struct {
	Name        string `koanf:"name"`
	Connections int    `koanf:"connections"` // 0: any number
}

// maxNamedLimits bounds each list.
const maxNamedLimits = 10_000

func (l Limits) validate(v *validation) {
	v.check(l.Connections >= 0, "limits.connections", "is below 0")
	v.check(l.PerDatabase >= 0, "limits.per_database", "is below 0")
	v.check(l.PerUser >= 0, "limits.per_user", "is below 0")
	validateNamed(v, "limits.databases", l.Databases)
	validateNamed(v, "limits.users", l.Users)
}

func validateNamed(v *validation, field string, limits []NamedLimit) {
	v.check(len(limits) <= maxNamedLimits, field, fmt.Sprintf("has more than %d names", maxNamedLimits))
	seen := map[string]bool{}
	for i, l := range limits {
		at := fmt.Sprintf("%s[%d]", field, i)
		v.check(l.Name != "", at+".name", "is missing")
		v.check(!seen[l.Name], at+".name", fmt.Sprintf("%q is there twice", l.Name))
		v.check(l.Connections >= 0, at+".connections", "is below 0")
		seen[l.Name] = true
	}
}

func (l Limits) caps() postgres.Caps {
	return postgres.Caps{
		Total: l.Connections, PerDatabase: l.PerDatabase, PerUser: l.PerUser, Databases: byName(l.Databases), Users: byName(l.Users),
	}
}

func byName(limits []NamedLimit) map[string]int {
	all := map[string]int{}
	for _, l := range limits {
		all[l.Name] = l.Connections
	}
	return all
}

// places tells the metrics of a listener's connections.
type places struct {
	metrics  *admin.Metrics
	listener string
}

func (p places) Seated(delta int)          { p.metrics.Seated(p.listener, delta) }
func (p places) Full(limit postgres.Limit) { p.metrics.Full(p.listener, string(limit)) }

// maxLimitRows bounds SHOW LIMITS.
const maxLimitRows = 1000

// Limits is part of admin.Operator.
func (s *Server) Limits() []admin.LimitView {
	var views []admin.LimitView
	for _, u := range s.limits.Uses(maxLimitRows) {
		views = append(views, admin.LimitView{Limit: string(u.Limit), Name: u.Name, Used: u.Used, Max: u.Max, Strangers: u.Strangers})
	}
	return views
}
