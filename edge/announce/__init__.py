"""Home Assistant MQTT discovery, out: the gateway announces its observations. Imported only where the setting is on."""
