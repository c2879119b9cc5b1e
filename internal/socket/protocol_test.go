package socket_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/overwinter-dev/overwinter/internal/socket"
)

func TestFirstKnownSubprotocolIsChosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		offered []string
		want    string
		is      socket.Protocol
	}{
		{nil, "", socket.Chat{}},
		{[]string{"chat"}, "", socket.Chat{}},
		{[]string{"chat, overwinter.events.v1", "overwinter.blocks.v1"}, "overwinter.events.v1", socket.Events{}},
		{[]string{"overwinter.blocks.v1,overwinter.events.v1"}, "overwinter.blocks.v1", socket.Blocks{}},
		{[]string{"Overwinter.Events.v1"}, "", socket.Chat{}},
	} {
		got := socket.Choose(c.offered)
		require.Equal(t, c.want, got, "%v", c.offered)
		require.Equal(t, c.is, socket.ByName(got))
	}
}
