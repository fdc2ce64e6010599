package freeport

import (
	"net"
	"slices"
	"testing"
)

func TestAddressesDifferAndStayOutOfTheEphemeralRange(t *testing.T) {
	addresses, err := Addresses(100)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		at, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if !at.IP.IsLoopback() || at.Port < 1024 || at.Port >= 32768 {
			t.Errorf("%s could be an outgoing connection's", address)
		}
	}
	slices.Sort(addresses)
	if n := len(slices.Compact(addresses)); n != 100 {
		t.Errorf("%d different addresses, want 100", n)
	}
}

func TestPortIsFreeAfterwards(t *testing.T) {
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
