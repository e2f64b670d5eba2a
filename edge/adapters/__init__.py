"""What brings readings in: MQTT, the embedded broker, the host's own sensors; and how readings become observations."""
