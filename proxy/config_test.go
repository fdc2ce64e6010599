package proxy

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func validConfig() Config {
	c := DefaultConfig()
	c.Postgres = []Postgres{{
		Upstream: "127.0.0.1:5432", Database: "app", Store: "postgres://lychgate_proxy@127.0.0.1:5432/app",
	}}
	return c.WithDefaults()
}

func TestDefaultsAreValid(t *testing.T) {
	if err := validConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	p := validConfig().Postgres[0]
	if p.Policy != "require" || p.OnLeaseEnd != "keep" || p.AllowUnsigned || p.Listen != "127.0.0.1:7632" || p.TakeoverTimeout != 5*time.Second {
		t.Errorf("the defaults are not the strict ones: %+v", p)
	}
}

func TestWithDefaultsKeepsWhatIsSet(t *testing.T) {
	set := Postgres{
		Listen: "a:1", Upstream: "b:2", TargetSessionAttrs: "primary", Database: "d", Store: "s", StoreConns: 7, Policy: "allow", Replication: "serve", OnLeaseEnd: "cut",
		TLS: TLS{Cert: "c", Key: "k"}, ProxyProtocol: ProxyProtocol{From: []string{"10.0.0.1"}}, UpstreamTLS: UpstreamTLS{Mode: "require"}, Auth: Auth{"scram", "f"}, AllowUnsigned: true, MaxConnections: 9, TakeoverTimeout: time.Minute,
	}
	c := Config{Postgres: []Postgres{set}}
	if got := c.WithDefaults().Postgres[0]; !reflect.DeepEqual(got, set) {
		t.Errorf("got %+v, want %+v", got, set)
	}
	c.Postgres[0] = Postgres{}
	if c.WithDefaults(); !reflect.DeepEqual(c.Postgres[0], Postgres{}) {
		t.Error("WithDefaults changed its receiver")
	}
}

func TestValidateNamesTheField(t *testing.T) {
	second := func(c *Config) *Postgres {
		c.Postgres = append(c.Postgres, c.Postgres[0])
		c.Postgres[1].Listen = "127.0.0.1:7633"
		return &c.Postgres[1]
	}
	for name, test := range map[string]struct {
		change func(*Config)
		field  string
		reason string
	}{
		"no node":                {func(c *Config) { c.Node = "" }, "node", "is missing"},
		"no coordinator":         {func(c *Config) { c.Coordinators = nil }, "coordinators", "is empty"},
		"coordinator's gRPC":     {func(c *Config) { c.Coordinators = []string{"http://a:1", "127.0.0.1:7600"} }, "coordinators[1]", "not an HTTP address"},
		"half a coordinator_tls": {func(c *Config) { c.Coordinators = []string{"https://a:1"}; c.CoordinatorTLS.Cert = "c" }, "coordinator_tls", "needs both cert and key"},
		"TLS to plain HTTP":      {func(c *Config) { c.CoordinatorTLS.CA = "ca" }, "coordinators[0]", "is plain HTTP"},
		"admin":                  {func(c *Config) { c.Admin = "7610" }, "admin", "not an address"},
		"admin's port":           {func(c *Config) { c.Admin = "127.0.0.1:76100" }, "admin", "there is no port 76100"},
		"upstream's port":        {func(c *Config) { second(c).Upstream = "10.0.0.1:54320000" }, "postgres[1].upstream", "there is no port 54320000"},
		"drain":                  {func(c *Config) { c.DrainTimeout = -1 }, "drain_timeout", "is not above 0"},
		"log level":              {func(c *Config) { c.Log.Level = "loud" }, "log.level", "known are debug"},
		"log format":             {func(c *Config) { c.Log.Format = "xml" }, "log.format", "known are text"},
		"no listener":            {func(c *Config) { c.Postgres = nil }, "postgres", "is empty"},
		"listen":                 {func(c *Config) { second(c).Listen = "localhost" }, "postgres[1].listen", "not an address"},
		"listen twice":           {func(c *Config) { second(c).Listen = c.Postgres[0].Listen }, "postgres[1].listen", "postgres[0].listen"},
		"listen on admin":        {func(c *Config) { c.Postgres[0].Listen = c.Admin }, "postgres[0].listen", "admin"},
		"upstream":               {func(c *Config) { c.Postgres[0].Upstream = "db" }, "postgres[0].upstream", "not host:port"},
		"no upstream":            {func(c *Config) { c.Postgres[0].Upstream = "" }, "postgres[0].upstream", "is missing"},
		"one host of two":        {func(c *Config) { c.Postgres[0].Upstream = "a:1,b" }, "postgres[0].upstream", "not host:port"},
		"a host twice":           {func(c *Config) { c.Postgres[0].Upstream = "a:1,a:1" }, "postgres[0].upstream", "named twice"},
		"session attributes":     {func(c *Config) { c.Postgres[0].TargetSessionAttrs = "standby" }, "postgres[0].target_session_attrs", "read-write, primary, any"},
		"store on several hosts": {func(c *Config) { c.Postgres[0].Store = "postgres://p@a:1,b:2/app" }, "postgres[0].store", "several hosts"},
		"upstream host":          {func(c *Config) { c.Postgres[0].Upstream = ":5432" }, "postgres[0].upstream", "not host:port"},
		"upstream port name":     {func(c *Config) { c.Postgres[0].Upstream = "db:postgres" }, "postgres[0].upstream", "not host:port"},
		"upstream port":          {func(c *Config) { c.Postgres[0].Upstream = "db:0" }, "postgres[0].upstream", "not host:port"},
		"upstream socket":        {func(c *Config) { c.Postgres[0].Upstream = "/var/run/postgresql" }, "postgres[0].upstream", "not host:port"},
		"no database":            {func(c *Config) { c.Postgres[0].Database = "" }, "postgres[0].database", "is missing"},
		"no store":               {func(c *Config) { c.Postgres[0].Store = "" }, "postgres[0].store", "is missing"},
		"store elsewhere":        {func(c *Config) { c.Postgres[0].Database = "other" }, "postgres[0].store", `serves "other"`},
		"bad store":              {func(c *Config) { c.Postgres[0].Store = "postgres://u:hunter2@h:x/app" }, "postgres[0].store", "not a PostgreSQL connection string"},
		"replication":            {func(c *Config) { c.Postgres[0].Replication = "physical" }, "postgres[0].replication", "known are refuse, serve"},
		"balancers":              {func(c *Config) { c.Postgres[0].ProxyProtocol.From = []string{"10.0.0.0/8", "::1", "lb1"} }, "postgres[0].proxy_protocol.from[2]", "not an address or a network"},
		"server leg's mode":      {func(c *Config) { c.Postgres[0].UpstreamTLS.Mode = "allow" }, "postgres[0].upstream_tls.mode", "known are disable"},
		"server leg, no mode":    {func(c *Config) { c.Postgres[0].UpstreamTLS.CA = "ca" }, "postgres[0].upstream_tls", "does nothing"},
		"server leg's CA":        {func(c *Config) { c.Postgres[0].UpstreamTLS.Mode = "verify-ca" }, "postgres[0].upstream_tls.ca", "is missing"},
		"server leg's key":       {func(c *Config) { c.Postgres[0].UpstreamTLS = UpstreamTLS{Mode: "require", Cert: "c"} }, "postgres[0].upstream_tls", "both cert and key"},
		"auth":                   {func(c *Config) { c.Postgres[0].Auth.Method = "md5" }, "postgres[0].auth.method", "known are relay, scram"},
		"scram without a file":   {func(c *Config) { c.Postgres[0].Auth.Method = "scram" }, "postgres[0].auth.file", "is missing"},
		"a file without scram":   {func(c *Config) { c.Postgres[0].Auth.File = "f" }, "postgres[0].auth.file", "does nothing"},
		"TLS over a socket":      {func(c *Config) { c.Postgres[0].Upstream = "/run:5432"; c.Postgres[0].UpstreamTLS.Mode = "require" }, "postgres[0].upstream_tls.mode", "unix socket"},
		"store conns":            {func(c *Config) { c.Postgres[0].StoreConns = 101 }, "postgres[0].store_conns", "between 1 and 100"},
		"policy":                 {func(c *Config) { c.Postgres[0].Policy = "deny" }, "postgres[0].policy", "known are require"},
		"on lease end":           {func(c *Config) { c.Postgres[0].OnLeaseEnd = "stop" }, "postgres[0].on_lease_end", "known are keep, cut"},
		"cut without a watch":    {func(c *Config) { c.Postgres[0].OnLeaseEnd = "cut" }, "postgres[0].on_lease_end", "watch.addresses is empty"},
		"watch of a URL":         {func(c *Config) { c.Watch.Addresses = []string{"a:1", "http://a:1"} }, "watch.addresses[1]", "not a gRPC address"},
		"watch's port":           {func(c *Config) { c.Watch.Addresses = []string{"a:76000"} }, "watch.addresses[0]", "there is no port 76000"},
		"fold":                   {func(c *Config) { c.Watch.FoldEvery = -1 }, "watch.fold_every", "is below 0"},
		"token without a watch":  {func(c *Config) { c.Watch.TokenFile = "t" }, "watch.token_file", "watch.addresses is empty"},
		"prefix without a watch": {func(c *Config) { c.Watch.Prefix = "t/" }, "watch.prefix", "watch.addresses is empty"},
		"half a certificate":     {func(c *Config) { c.Postgres[0].TLS.Cert = "c.pem" }, "postgres[0].tls", "both cert and key"},
		"connections":            {func(c *Config) { c.Postgres[0].MaxConnections = -1 }, "postgres[0].max_connections", "below 1"},
		"takeover":               {func(c *Config) { c.Postgres[0].TakeoverTimeout = -1 }, "postgres[0].takeover_timeout", "not above 0"},
	} {
		c := validConfig()
		test.change(&c)
		err := c.Validate()
		fields := fieldErrors(err)
		i := slices.IndexFunc(fields, func(f *FieldError) bool { return f.Field == test.field })
		if i < 0 || !strings.Contains(fields[i].Reason, test.reason) {
			t.Errorf("%s: got %v, want %s: … %s", name, err, test.field, test.reason)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

func TestValidateShowsAllAtOnce(t *testing.T) {
	c := validConfig()
	c.Node, c.Admin, c.Postgres[0].Policy = "", "x", "y"
	if got := len(fieldErrors(c.Validate())); got != 3 {
		t.Errorf("got %d errors, want 3: %v", got, c.Validate())
	}
}

func TestValidateTakesSocketAndFreePorts(t *testing.T) {
	c := validConfig()
	c.Admin, c.Postgres[0].Listen = "127.0.0.1:0", "127.0.0.1:0"
	c.Postgres[0].Upstream = "/var/run/postgresql:5432"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func fieldErrors(err error) []*FieldError {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var out []*FieldError
	for _, e := range joined.Unwrap() {
		if f, ok := errors.AsType[*FieldError](e); ok {
			out = append(out, f)
		}
	}
	return out
}
