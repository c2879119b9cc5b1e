package temporald

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"

	"github.com/overwinter-dev/overwinter/devserver/internal/peeruser"
)

// The durability of a commit when it is acknowledged; see the package comment.
const (
	// SyncNormal flushes the disk at checkpoints only.
	SyncNormal = "normal"
	// SyncFull flushes the disk at every commit.
	SyncFull = "full"
)

// DefaultRetention is the default of Config.Retention. A session closes one run with every sleep
// and wake, about 20 kB each, and its actions are in the event log, so a week of histories is only
// for troubleshooting.
const DefaultRetention = 7 * 24 * time.Hour

// clusterName is the name of the only cluster. It is stored in every file, so it must never change.
const clusterName = "active"

// numHistoryShards is stored in every file at its creation, so it must never change either. With
// one connection to SQLite, a second shard has no advantage.
const numHistoryShards = 1

// Config configures a server's addresses, its data, and the initial content of the data.
type Config struct {
	// IP is the address of the frontend and the UI. On loopback, the users of AllowUsers
	// are served; elsewhere there is no authentication, and the network around it must be closed. Required.
	IP netip.Addr
	// AllowUsers are users of this machine that may use a server on loopback, in addition to this
	// process's user and root, in the syntax of peeruser.Parse. Default none.
	AllowUsers string
	// Port is the frontend's TCP port, 1 to 65535. Required.
	Port int
	// UIPort is the web UI's TCP port, 0 for no UI. Default 0.
	UIPort int
	// UIHosts are host names, in lower case, under which browsers may call the UI besides localhost
	// and IP addresses. Default none.
	UIHosts []string
	// DatabaseFile is the path of the SQLite file, which is created if missing, in an existing
	// directory. Default "", which keeps everything in memory.
	DatabaseFile string
	// Sync is SyncNormal or SyncFull. Required.
	Sync string
	// Namespace is created if missing. Required.
	Namespace string
	// Retention applies to a namespace that is created now; an existing one keeps its own. At least
	// an hour. Required.
	Retention time.Duration
	// SearchAttributes are added to the namespace, new or not, by name. Default none.
	SearchAttributes map[string]enumspb.IndexedValueType
	// DynamicConfig overrides the server's settings, and the tuning of this package, by key. The
	// values are YAML. Default none.
	DynamicConfig map[string]string
}

// Validate returns an error that names the first field out of bounds.
func (c Config) Validate() error {
	switch {
	case !c.IP.IsValid():
		return errors.New("ip: must be an IP address")
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("port: %d is not between 1 and 65535", c.Port)
	case c.UIPort < 0 || c.UIPort > 65535:
		return fmt.Errorf("ui port: %d is not between 0 and 65535", c.UIPort)
	case c.UIPort == c.Port:
		return fmt.Errorf("ui port: %d is the frontend's port", c.UIPort)
	case validUsers(c.AllowUsers) != nil:
		return fmt.Errorf("allow-users: %w", validUsers(c.AllowUsers))
	case c.Namespace == "":
		return errors.New("namespace: must not be empty")
	case c.Retention < time.Hour:
		return fmt.Errorf("retention: %s is less than an hour", c.Retention)
	case !slices.Contains([]string{SyncNormal, SyncFull}, c.Sync):
		return fmt.Errorf("sync: %q is neither %q nor %q", c.Sync, SyncNormal, SyncFull)
	}
	return nil
}

// frontendAddress returns the address of the frontend for clients on this machine: its own, or
// loopback if it listens on all.
func (c Config) frontendAddress() string {
	ip := c.IP
	if ip.IsUnspecified() {
		ip = c.loopback()
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(c.Port))
}

// loopback returns the address that the services use among themselves.
func (c Config) loopback() netip.Addr {
	switch {
	case c.IP.IsLoopback():
		return c.IP
	case c.IP.Is6():
		return netip.IPv6Loopback()
	default:
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
}

// servicePorts are the gRPC ports of the services that only talk among themselves.
type servicePorts struct{ history, matching, worker int }

// serverConfig returns the configuration of the Temporal server for c.
func (c Config) serverConfig(sql *config.SQL, ports servicePorts) *config.Config {
	disabled := "disabled"
	service := func(ip netip.Addr, port int) config.Service {
		return config.Service{RPC: config.RPC{BindOnIP: ip.String(), GRPCPort: port}}
	}
	return &config.Config{
		Global: config.Global{
			Membership: config.Membership{
				MaxJoinDuration:  10 * time.Second,
				BroadcastAddress: c.loopback().String(),
			},
		},
		Persistence: config.Persistence{
			DefaultStore:     sqlite.PluginName,
			VisibilityStore:  sqlite.PluginName,
			NumHistoryShards: numHistoryShards,
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
				Enabled:                true,
				InitialFailoverVersion: 1,
				RPCAddress:             c.frontendAddress(),
			}},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			string(primitives.FrontendService): service(c.IP, c.Port),
			string(primitives.HistoryService):  service(c.loopback(), ports.history),
			string(primitives.MatchingService): service(c.loopback(), ports.matching),
			string(primitives.WorkerService):   service(c.loopback(), ports.worker),
		},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: disabled},
			Visibility: config.VisibilityArchival{State: disabled},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: disabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: disabled},
		}},
		PublicClient: config.PublicClient{HostPort: c.frontendAddress()},
	}
}

// staticHosts gives each service the addresses of the others, so that no membership protocol runs
// and no membership port is opened.
func (c Config) staticHosts(ports servicePorts) map[primitives.ServiceName]static.Hosts {
	only := func(address string) static.Hosts {
		return static.Hosts{All: []string{address}, Self: address}
	}
	internal := func(port int) static.Hosts {
		return only(net.JoinHostPort(c.loopback().String(), strconv.Itoa(port)))
	}
	return map[primitives.ServiceName]static.Hosts{
		primitives.FrontendService: only(c.frontendAddress()),
		primitives.HistoryService:  internal(ports.history),
		primitives.MatchingService: internal(ports.matching),
		primitives.WorkerService:   internal(ports.worker),
	}
}

func validUsers(list string) error {
	_, err := peeruser.Parse(list)
	return err
}
