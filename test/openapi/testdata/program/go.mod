module example

go 1.26

require (
	github.com/oapi-codegen/runtime v1.1.2
	gopkg.in/yaml.v2 v2.4.0
)

require (
	github.com/apapsch/go-jsonmerge/v2 v2.0.0 // indirect
	github.com/google/uuid v1.5.0 // indirect
)
