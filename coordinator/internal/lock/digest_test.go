package lock_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestDigestCoversEverything changes each field of a snapshot in turn: the digest must change, or two replicas could
// differ in it unseen. The index is no part of the state.
func TestDigestCoversEverything(t *testing.T) {
	base := func() parts {
		p := queueParts(t)
		p.header.Counter, p.header.Seq = 1000, 1000
		return p
	}
	m, err := base().restore()
	if err != nil {
		t.Fatal(err)
	}
	want, changed := m.Digest(), 0
	p := base()
	for i := range leaves(&p) {
		p := base()
		leaf := leaves(&p)[i]
		change(t, leaf.value)
		m, err := p.restore()
		if err != nil {
			continue // then it cannot differ unseen; see TestRestoreRefuses
		}
		changed++
		if same := m.Digest() == want; same != (leaf.path == "header.Index") {
			t.Errorf("%s changed: the digest is the same: %v", leaf.path, same)
		}
	}
	if changed < 45 {
		t.Errorf("only %d fields could be changed", changed)
	}
}

// leaf is a field that is no struct.
type leaf struct {
	path  string
	value reflect.Value
}

// leaves lists those that mean something: the claim of a request that has one, a waiter's place, a lease.
func leaves(p *parts) []leaf {
	all := leavesOf("header", reflect.ValueOf(&p.header).Elem())
	all = append(all, leavesOf("delays", reflect.ValueOf(&p.delays).Elem())...)
	for i := range p.clients {
		all = append(all, leavesOf(fmt.Sprintf("client %d", i), reflect.ValueOf(&p.clients[i]).Elem())...)
		q := &p.own[i][0]
		for _, l := range leavesOf(fmt.Sprintf("request %d", i), reflect.ValueOf(q).Elem()) {
			name := l.path[len("request 0."):]
			waits, holds := i == 1, i == 0
			isWait, isLease, isClaim := strings.HasPrefix(name, "Waiter."), strings.HasPrefix(name, "Lease."), strings.HasPrefix(name, "Claim.")
			if isWait && !waits || isLease && !holds || isClaim && !waits && !holds {
				continue
			}
			all = append(all, l)
		}
	}
	return all
}

func leavesOf(path string, v reflect.Value) []leaf {
	switch v.Kind() {
	case reflect.Struct:
		var all []leaf
		for i := range v.NumField() {
			all = append(all, leavesOf(path+"."+v.Type().Field(i).Name, v.Field(i))...)
		}
		return all
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct {
			var all []leaf
			for i := range v.Len() {
				all = append(all, leavesOf(fmt.Sprintf("%s[%d]", path, i), v.Index(i))...)
			}
			return all
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return []leaf{{path, v}, {path + "*", v.Elem()}}
		}
	default:
	}
	return []leaf{{path, v}}
}

func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		v.SetBytes(append(v.Bytes(), 1))
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Array:
		v.Index(5).SetUint(v.Index(5).Uint() + 1)
	default:
		t.Fatalf("a field of kind %v", v.Kind())
	}
}
