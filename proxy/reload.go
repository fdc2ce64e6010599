package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"

	"github.com/lychgate/lychgate/proxy/gate"
)

// errNoFile: the program that runs the proxy gave it nothing to reload from.
var errNoFile = errors.New("there is no configuration to read anew")

// Reload reads the configuration anew and takes what may change while the proxy runs, all or nothing. An error
// has changed nothing.
func (s *Server) Reload() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	if err := s.reload(); err != nil {
		return err
	}
	s.logger.Info("configuration taken anew")
	return nil
}

func (s *Server) reload() error {
	if s.load == nil {
		return errNoFile
	}
	next, err := s.load()
	if err != nil {
		return err
	}
	if err := next.Validate(); err != nil {
		return err
	}
	if err := s.applied.fixed(next); err != nil {
		return err
	}
	// Everything that can fail comes before the first change.
	certificates := make([]*tls.Certificate, len(next.Postgres))
	policies := make([]gate.Policy, len(next.Postgres))
	for i, p := range next.Postgres {
		if certificates[i], err = p.TLS.certificate(); err != nil {
			return &FieldError{fmt.Sprintf("postgres[%d].tls", i), err.Error()}
		}
		if policies[i], err = gate.ParsePolicy(p.Policy); err != nil {
			return &FieldError{fmt.Sprintf("postgres[%d].policy", i), err.Error()}
		}
	}
	for i, l := range s.listeners {
		l.certificate.Store(certificates[i])
		l.take(next.Postgres[i], policies[i], s.metrics)
	}
	s.limits.SetCaps(next.Limits.caps())
	s.console.SetUsers(next.Console.users())
	if s.level != nil {
		_ = s.level.UnmarshalText([]byte(next.Log.Level)) // checked by Validate
	}
	s.applied = next
	return nil
}

// fixed says what of a configuration differs from the one that is running and cannot change while it runs, by name. What
// can: limits, console.users, log.level, and of a listener its policy, its max_connections, and the
// certificate and key where it has one.
func (c Config) fixed(next Config) error {
	var v validation
	v.check((len(c.Console.Users) == 0) == (len(next.Console.Users) == 0), "console", "cannot be turned on or off while the proxy runs: it needs a restart")
	if len(c.Postgres) != len(next.Postgres) {
		v.add("postgres", "gets more or fewer listeners, which needs a restart")
	} else {
		for i, p := range c.Postgres {
			p.fixed(&v, fmt.Sprintf("postgres[%d].", i), next.Postgres[i])
		}
	}
	c.Limits, c.Console, c.Postgres, c.Log.Level = next.Limits, next.Console, next.Postgres, next.Log.Level
	v.same("", c, next)
	return errors.Join(v.errs...)
}

func (p Postgres) fixed(v *validation, field string, next Postgres) {
	if p.TLS.Cert != "" && next.TLS.Cert != "" {
		p.TLS.Cert, p.TLS.Key = next.TLS.Cert, next.TLS.Key
	}
	p.Policy, p.MaxConnections = next.Policy, next.MaxConnections
	v.same(field, p, next)
}

// same finds the fields of two structs of one type that differ.
func (v *validation) same(prefix string, before, after any) {
	a, b := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			v.add(prefix+a.Type().Field(i).Tag.Get("koanf"), "cannot change while the proxy runs: it needs a restart")
		}
	}
}
