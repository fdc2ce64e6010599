package coordinator

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func testConfig() Config {
	c := DefaultConfig()
	c.Node, c.Dir = "n1", "data"
	c.Members = []Member{
		{ID: "n1", Peer: "127.0.0.1:7602", GRPC: "127.0.0.1:7600", HTTP: "127.0.0.1:7601"},
		{ID: "n2", Peer: "127.0.0.1:7702", GRPC: "127.0.0.1:7700", HTTP: "127.0.0.1:7701"},
		{ID: "n3", Peer: "127.0.0.1:7802", GRPC: "127.0.0.1:7800", HTTP: "127.0.0.1:7801"},
	}
	return c
}

func TestDefaultsAreValid(t *testing.T) {
	if err := testConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		fields []string
	}{
		"nothing": {func(c *Config) {
			*c = Config{Log: c.Log, Limits: c.Limits, Audit: c.Audit, Timing: c.Timing, Lease: c.Lease}
		}, []string{"dir", "groups", "members", "node"}},
		"node is no member":         {func(c *Config) { c.Node = "n9" }, []string{"node"}},
		"member twice":              {func(c *Config) { c.Members[1].ID = "n1" }, []string{"members[1].id"}},
		"member with a bad name":    {func(c *Config) { c.Members[1].ID = "n 2" }, []string{"members[1].id"}},
		"address twice":             {func(c *Config) { c.Members[2].HTTP = c.Members[0].GRPC }, []string{"members[2].http"}},
		"address without a port":    {func(c *Config) { c.Members[2].Peer = "10.0.0.3" }, []string{"members[2].peer"}},
		"port of letters":           {func(c *Config) { c.Members[2].Peer = "10.0.0.3:raft" }, []string{"members[2].peer"}},
		"no address":                {func(c *Config) { c.Members[2].GRPC = "" }, []string{"members[2].grpc"}},
		"bad listen address":        {func(c *Config) { c.Listen.HTTP = "7601" }, []string{"listen.http"}},
		"no heartbeat":              {func(c *Config) { c.Timing.Heartbeat = 0 }, []string{"timing.commit", "timing.heartbeat", "timing.leader_lease"}},
		"election below heartbeat":  {func(c *Config) { c.Timing.Election = 100 * time.Millisecond }, []string{"timing.election"}},
		"leader lease too long":     {func(c *Config) { c.Timing.LeaderLease = time.Second }, []string{"timing.leader_lease"}},
		"impatient calls":           {func(c *Config) { c.Timing.Call = time.Second }, []string{"timing.call"}},
		"TTL below three failovers": {func(c *Config) { c.Lease.MinTTL = 4 * time.Second }, []string{"lease.min_ttl"}},
		"an impatient disk":         {func(c *Config) { c.Timing.Disk = 900 * time.Millisecond }, []string{"timing.disk"}},
		"stuck before the disk is":  {func(c *Config) { c.Timing.Stuck = 3 * time.Second }, []string{"timing.stuck"}},
		"no bound on the disk":      {func(c *Config) { c.Timing.Disk, c.Timing.Stuck = 0, 0 }, []string{"timing.disk", "timing.stuck"}},
		"slow elections":            {func(c *Config) { c.Timing.Election, c.Timing.Call = 2*time.Second, 4*time.Second }, []string{"lease.min_ttl"}},
		"default above longest":     {func(c *Config) { c.Lease.DefaultTTL = 2 * time.Hour }, []string{"lease.default_ttl"}},
		"default below shortest":    {func(c *Config) { c.Lease.DefaultTTL = time.Second }, []string{"lease.default_ttl"}},
		"longest past the API":      {func(c *Config) { c.Lease.MaxTTL = 30 * 24 * time.Hour }, []string{"lease.max_ttl"}},
		"grace below an election":   {func(c *Config) { c.Lease.Grace = time.Second }, []string{"lease.grace"}},
		"claim below an election":   {func(c *Config) { c.Lease.ClaimWindow = time.Second }, []string{"lease.claim_window"}},
		"no waiters":                {func(c *Config) { c.Lease.MaxWaiters = 0 }, []string{"lease.max_waiters"}},
		"too many groups":           {func(c *Config) { c.Groups = 65 }, []string{"groups"}},
		"negative groups":           {func(c *Config) { c.Groups = -1 }, []string{"groups"}},
		"negative calls":            {func(c *Config) { c.Limits.Calls = -1 }, []string{"limits.calls"}},
		"no audit files":            {func(c *Config) { c.Audit.Keep = 0 }, []string{"audit.keep"}},
		"loud log":                  {func(c *Config) { c.Log.Level = "loud" }, []string{"log.level"}},
		"unknown format":            {func(c *Config) { c.Log.Format = "xml" }, []string{"log.format"}},
	} {
		c := testConfig()
		test.change(&c)
		if got := fieldsOf(c.Validate()); !slices.Equal(got, test.fields) {
			t.Errorf("%s: got %v, want %v (%v)", name, got, test.fields, c.Validate())
		}
	}
}

func fieldsOf(err error) (fields []string) {
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) {
		return nil
	}
	for _, e := range all.Unwrap() {
		var f *FieldError
		if errors.As(e, &f) {
			fields = append(fields, f.Field)
		}
	}
	return fields
}

// A leader is given as long as the followers are: on a busy machine both are silent for half of it now and then.
func TestLeaderLeaseIsTheHeartbeatUnlessSaid(t *testing.T) {
	if timing := DefaultConfig().Timing; timing.LeaderLease != timing.Heartbeat {
		t.Errorf("leader lease %s, heartbeat %s", timing.LeaderLease, timing.Heartbeat)
	}
}

func TestListenDefaultsToTheOwnMember(t *testing.T) {
	c := testConfig()
	c.Node, c.Listen.GRPC = "n2", "0.0.0.0:7700"
	c.Insecure = true // it can be reached by other machines
	n, err := New(c, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if n.GRPCAddr() != "0.0.0.0:7700" || n.HTTPAddr() != "127.0.0.1:7701" || n.PeerAddr() != "127.0.0.1:7702" {
		t.Errorf("gRPC %s, HTTP %s, peers %s", n.GRPCAddr(), n.HTTPAddr(), n.PeerAddr())
	}
}

func TestAuditFile(t *testing.T) {
	c := testConfig()
	for file, want := range map[string]string{"": "data/audit.jsonl", "off": "", "/var/log/a": "/var/log/a"} {
		c.Audit.File = file
		if got := c.auditFile(); got != want {
			t.Errorf("audit.file %q: %q, want %q", file, got, want)
		}
	}
}
