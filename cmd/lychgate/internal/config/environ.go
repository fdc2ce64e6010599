package config

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// EnvPrefix begins the name of every environment variable that is read.
const EnvPrefix = "LYCHGATE_"

// Not keys: what the client commands read (commands on the machine of a server share its environment), and what
// Kubernetes sets in every container of a namespace that has a Service named lychgate.
var notKeys = []*regexp.Regexp{
	regexp.MustCompile(`^LYCHGATE_(ADDR|LEASE|PROXY|TLS_CA|TLS_CERT|TLS_KEY|TOKEN_FILE)$`),
	regexp.MustCompile(`^LYCHGATE_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?)$`),
	regexp.MustCompile(`^LYCHGATE_(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`),
}

// fromEnviron picks the keys out of the environment, in the order of their names, so that elements of a
// list can be added one after the other.
func fromEnviron(shape reflect.Type, environ []string) ([]value, error) {
	var out []value
	var faults []error
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		if !isKey(name) {
			continue
		}
		v, err := typedValue(shape, name, envPath(name), text)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out = append(out, v)
	}
	return out, errors.Join(faults...)
}

func isKey(name string) bool {
	if !strings.HasPrefix(name, EnvPrefix) || name == EnvPrefix {
		return false
	}
	return !slices.ContainsFunc(notKeys, func(r *regexp.Regexp) bool { return r.MatchString(name) })
}

func envPath(name string) path {
	var p path
	for part := range strings.SplitSeq(strings.ToLower(strings.TrimPrefix(name, EnvPrefix)), "__") {
		p = append(p, stepOf(part))
	}
	return p
}
