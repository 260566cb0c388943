// Package cyclonedx pins the module that has CycloneDX' schemas; no program is built from it.
package cyclonedx

import _ "github.com/CycloneDX/cyclonedx-go"
