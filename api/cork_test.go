package api

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// writes records the writes to a connection.
type writes struct {
	net.Conn
	made []string
	err  error
}

func (w *writes) Write(p []byte) (int, error) {
	w.made = append(w.made, string(p))
	return len(p), w.err
}

func TestCorkedConnectionGathersWrites(t *testing.T) {
	t.Parallel()
	to := &writes{}
	c := &corkedConn{Conn: to}
	write := func(text string) {
		t.Helper()
		n, err := c.Write([]byte(text))
		require.NoError(t, err)
		require.Len(t, text, n)
	}
	write("a")
	require.NoError(t, c.uncork(), "it is not corked")
	c.cork()
	write("b")
	c.cork()
	write("c")
	require.Equal(t, []string{"a"}, to.made)
	require.NoError(t, c.uncork())
	write("d")
	require.Equal(t, []string{"a", "bc", "d"}, to.made)

	c.cork()
	write("e")
	long := strings.Repeat("x", corkBytes)
	write(long)
	require.Equal(t, []string{"a", "bc", "d", "e" + long}, to.made, "enough is written at once")
	require.NoError(t, c.uncork())
	require.Len(t, to.made, 4, "nothing was held")

	to.err = errors.New("gone")
	c.cork()
	write("f")
	require.Error(t, c.uncork())
	c.cork()
	_, err := c.Write([]byte(long))
	require.Error(t, err)
	to.err = nil
	require.NoError(t, c.uncork(), "what failed is not written again")
	require.Len(t, to.made, 6)
}
