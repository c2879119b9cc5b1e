package devstack

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A program that listens on the port while Postgres restarts gets no password.
func TestPasswordIsSentOnlyToOwnServer(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]uint32{"the password itself": 3, "an MD5 hash": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			got := make(chan []byte, 1) // one send
			go func() {
				defer close(got)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				var size [4]byte
				if _, err := io.ReadFull(conn, size[:]); err != nil {
					return
				}
				if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:]))-4); err != nil {
					return
				}
				ask := binary.BigEndian.AppendUint32([]byte{'R'}, 8)
				if method == 5 {
					ask = binary.BigEndian.AppendUint32([]byte{'R'}, 12)
				}
				ask = binary.BigEndian.AppendUint32(ask, method)
				if method == 5 {
					ask = append(ask, "salt"...)
				}
				if _, err := conn.Write(ask); err != nil {
					return
				}
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				rest, _ := io.ReadAll(conn) // until the client hangs up
				got <- rest
			}()
			server := postgresServer{port: listener.Addr().(*net.TCPAddr).Port, password: "hidden", admin: "hidden"}
			_, err = pgx.Connect(t.Context(), server.url())
			require.Error(t, err)
			require.NotContains(t, string(<-got), "p\x00", "a message with a password, or its hash")
			require.ErrorContains(t, err, "auth")
			require.NoError(t, listener.Close())
		})
	}
	require.Contains(t, (&postgresServer{}).adminURL("postgres"), "require_auth=scram-sha-256")
}

func TestDirectoryWhosePathFitsNoSocketIsReachedByTCP(t *testing.T) {
	t.Parallel()
	for directory, host := range map[string]string{
		"/data/[postgres] & 100%":           "/data/[postgres] & 100%",
		"/data/a,b":                         "127.0.0.1",
		`/data/a"b`:                         "127.0.0.1",
		"/data/" + strings.Repeat("d", 82):  "/data/" + strings.Repeat("d", 82),
		"/data/" + strings.Repeat("d", 83):  "127.0.0.1",
		"/data/" + strings.Repeat("d", 185): "127.0.0.1",
	} {
		server := postgresServer{directory: directory, sockets: true, port: 54321, password: "p@ss/word"}
		config, err := pgx.ParseConfig(server.socketURL())
		require.NoError(t, err)
		require.Equal(t, host, config.Host)
		require.Equal(t, uint16(54321), config.Port)
		require.Equal(t, "p@ss/word", config.Password)
		require.Equal(t, roleName, config.User)
		require.Equal(t, databaseName, config.Database)
	}
}

func TestFileSystemWithoutSocketsIsReachedByTCP(t *testing.T) {
	t.Parallel()
	require.True(t, takesSockets(t.Context(), t.TempDir()))
	require.False(t, takesSockets(t.Context(), filepath.Join(t.TempDir(), "missing")))
	require.False(t, takesSockets(t.Context(), "/proc/self")) // as other file systems that contain no sockets
	server := postgresServer{directory: "/data", port: 54321}
	require.Equal(t, server.url(), server.socketURL())
}

// The socket of a killed server would stay forever, because the next one may have another port.
func TestSocketOfEarlierServerIsDeleted(t *testing.T) {
	t.Parallel()
	server := postgresServer{directory: t.TempDir(), exists: true}
	for _, name := range []string{".s.PGSQL.54321", ".s.PGSQL.54321.lock", "PG_VERSION"} {
		require.NoError(t, os.WriteFile(filepath.Join(server.directory, name), nil, 0o600))
	}
	require.NoError(t, server.prepare(t.Context()))
	files, err := os.ReadDir(server.directory)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Equal(t, "PG_VERSION", files[0].Name())
}
