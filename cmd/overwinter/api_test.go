package main

import (
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/api"
	"github.com/overwinter-dev/overwinter/internal/peeruser"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

func TestAPIWithoutKeyIsLimitedToUsers(t *testing.T) {
	t.Parallel()
	// No process has made this connection, so its user cannot be found.
	refused := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	check, err := (&apiCmd{}).callers(t.Context(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NotNil(t, check)
	require.Error(t, check(refused, refused))

	for name, c := range map[string]*apiCmd{"a key": {Key: secret.NewValue("0123456789012345678901234")}, "every user": {AllowUsers: "all"}} {
		check, err := c.callers(t.Context(), slog.New(slog.DiscardHandler))
		require.NoError(t, err, name)
		require.Nil(t, check, name)
	}
	require.ErrorContains(t, (&apiCmd{CollectWindow: api.DefaultCollectWindow, AllowLoopbackWithoutKey: true, Address: "127.0.0.1:0", corsFlags: corsFlags{CORSOrigins: []string{"*"}}}).Validate(), "--cors-origin")
	require.ErrorContains(t, (&apiCmd{CollectWindow: api.DefaultCollectWindow, AllowLoopbackWithoutKey: true, Address: "127.0.0.1:0", AllowUsers: "no-such-user"}).Validate(), "--allow-users")
}

func TestDevAdmitsUserWhoRanSudo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flag, sudo string
		euid       int
		want       string
	}{
		{"", "", 0, ""},
		{"", "1000", 0, "1000"},
		{"alice", "1000", 0, "alice,1000"},
		{"alice", "1000", 1001, "alice"}, // sudo -u
		{"", "x,all", 0, ""},
	} {
		require.Equal(t, c.want, (&devCmd{AllowUsers: c.flag}).allowUsers(c.sudo, c.euid), "%+v", c)
	}
	_, err := peeruser.Parse((&devCmd{}).allowUsers("1000", 0))
	require.NoError(t, err)
}
